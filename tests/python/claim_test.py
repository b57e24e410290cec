"""claim(): devices of one's own for this process."""

import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import threading
import time
import unittest
import warnings

import machine
import yoke

CLAIM_AND_WAIT = """
import sys, yoke
devices = yoke.claim({arguments})
print("held", len(devices), flush=True)
sys.stdin.readline()
"""


class Claiming(machine.Machine):
    def holders(self):
        return [each.pid for each in yoke.claims().claims]

    def wait_for_none(self):
        machine.wait_until(lambda: self.holders() == [], "given back")

    def start_claimer(self, arguments="2", **options):
        process = self.start(CLAIM_AND_WAIT.format(arguments=arguments), **options)
        self.assertEqual(process.stdout.readline(), f"held {arguments[0]}\n")
        return process

    def test_it_sets_what_the_command_sets_until_the_end(self):
        before = dict(os.environ)
        with yoke.claim(2, memory="20GiB", name="a test") as devices:
            self.assertEqual(len(devices), 2)
            self.assertEqual(os.environ["CUDA_VISIBLE_DEVICES"], ",".join(each.uuid for each in devices))
            self.assertEqual([each.ordinal for each in devices], [0, 1])
            self.assertEqual(self.command("visible", "--json").stdout.count('"visible": true'), 2)
            entries = yoke.claims().claims
            self.assertEqual({each.device_uuid for each in entries}, {each.uuid for each in devices})
            self.assertEqual({(each.pid, each.purpose) for each in entries}, {(devices.pid, "a test")})
            self.assertTrue(devices.is_held)
        self.assertEqual(os.environ, before)
        self.assertEqual(self.holders(), [])
        self.assertFalse(devices.is_held)
        devices.release()  # once more does nothing
        error = self.error_of(devices.__enter__)
        self.assertEqual((error.status, str(error)), (69, "this claim was released; claim again"))

    def test_a_share_passes_its_size_on(self):
        with yoke.claim(memory="2GiB", share=True):
            self.assertEqual(os.environ["YOKE_DEVICE_MEMORY_BYTES"], str(2 << 30))
            (entry,) = yoke.claims().claims
            self.assertEqual(entry.shared_bytes, 2 << 30)
        self.assertNotIn("YOKE_DEVICE_MEMORY_BYTES", os.environ)

    def test_devices_are_chosen_by_the_commands_names(self):
        third = yoke.devices()[3]
        for names in (3, "3", [3], [third.uuid], third, [third], yoke.visible()[3:]):
            with yoke.claim(devices=names) as devices:
                self.assertEqual([each.index for each in devices], [3])
        for options, expected in [({"devices": b"3"}, "devices=b'3'; give ids"), ({"devices": [b"3"]}, "devices has b'3'"),
                                  ({"devices": 3.0}, "devices=3.0; give ids"), ({"share": "no"}, "share='no'; give True"),
                                  ({"wait": 30}, "wait=30; give True, False or a time"), ({"wait": "-5s"}, "--wait -5s")]:
            error = self.error_of(yoke.claim, **options)
            self.assertEqual(error.status, 64)
            self.assertIn(expected, str(error))

    def test_the_name_is_that_of_the_script(self):
        script = self.folder / "train.py"
        script.write_text("import yoke\nwith yoke.claim(): print(yoke.claims().claims[0].purpose)")
        self.assertEqual(subprocess.check_output([sys.executable, script], universal_newlines=True), "python train.py\n")

    def test_what_cannot_be_had_is_an_error_with_the_commands_status(self):
        self.set_state({"devices": 4, "overrides": {"0": {"processes": [{"pid": os.getpid(), "memory_mib": 100}]}}})
        before = dict(os.environ)
        for expected, status, options in [
                (r"4 devices are wanted, and 3 are free: device 0 is in use without a claim", 75, {"num_devices": 4}),
                (r"12 devices are wanted", 69, {"num_devices": 12}),
                (r"-n 0: give 1 to 128", 64, {"num_devices": 0}),
                (r"no device 9", 66, {"devices": "9"}),
                (r"give a size with its unit", 64, {"memory": "20"}),
                (r"--backfill needs to know how long", 64, {"backfill": True}),
                (r"^yoke claim: waited for 1 s without success", 124, {"devices": 0, "wait": "1s"})]:
            error = self.error_of(yoke.claim, **options)
            self.assertRegex(str(error), expected)
            self.assertEqual(error.status, status)
        self.assertEqual(os.environ, before)
        self.without_driver()
        error = self.error_of(yoke.claim)
        self.assertEqual(error.status, 66)
        self.assertIn("there is nothing to claim", str(error))
        self.assertRaises(TypeError, yoke.claim, nubmer=2)

    def test_a_process_has_one_claim(self):
        with yoke.claim(1) as devices:
            error = self.error_of(yoke.claim, 1)
            self.assertEqual(error.status, 69)
            self.assertIn(repr(devices), str(error))
            self.assertEqual(self.holders(), [devices.pid])
        with yoke.claim(1):
            pass

    def test_of_two_threads_one_gets_it(self):
        results, start = [], threading.Barrier(2)

        def work():
            start.wait()
            try:
                results.append(yoke.claim(1))
            except yoke.Error as error:
                results.append(error.status)

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (refused,) = [each for each in results if isinstance(each, int)]
        self.assertEqual(refused, 69)
        (held,) = [each for each in results if isinstance(each, yoke.Claim)]
        self.assertEqual(self.holders(), [held.pid])
        held.release()  # by another thread than its own

    def test_an_exception_releases_and_comes_out(self):
        with self.assertRaisesRegex(ValueError, "mine"):
            with yoke.claim(1):
                raise ValueError("mine")
        self.assertEqual(self.holders(), [])

    def test_it_ends_with_the_process_however_that_ends(self):
        for how in (signal.SIGKILL, signal.SIGTERM, None):
            process = self.start_claimer()
            self.assertEqual(len(self.holders()), 2)
            if how is None:
                process.stdin.write("\n")
                process.stdin.flush()
                self.assertEqual(process.wait(), 0)
                self.assertEqual(process.stderr.read(), "")
                self.assertEqual(self.holders(), [], "a normal end waits until the devices are given back")
            else:
                process.send_signal(how)
            self.wait_for_none()

    def test_it_ends_with_a_process_that_is_killed_at_any_moment(self):
        for i in range(12):
            process = self.start("import yoke; print(flush=True); yoke.claim(1); print('held', flush=True); input()")
            process.stdout.readline()
            time.sleep(random.uniform(0, 0.15))  # clock: it ends at every moment
            process.send_signal((signal.SIGKILL, signal.SIGINT)[i % 2])
            process.wait()
            self.wait_for_none()
            machine.wait_until(lambda: not self.claimers(), "no process is left")

    def claimers(self):
        """Processes of `yoke claim` in this test."""
        found = []
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if str(self.folder).encode() in (folder / "environ").read_bytes() and b"\0claim\0" in (
                        folder / "cmdline").read_bytes():
                    found.append(folder.name)
            except OSError:  # it has ended
                pass
        return found

    def test_ctrl_c_while_it_claims_leaves_no_claim(self):
        process = self.start("""
import random, os, signal, threading, time, yoke
before = dict(os.environ)
for _ in range(12):
    timer = threading.Timer(random.uniform(0, 0.1), os.kill, (os.getpid(), signal.SIGINT))
    devices = None
    try:
        timer.start()
        devices = yoke.claim(1)
        timer.join()
        time.sleep(1000)
    except KeyboardInterrupt:
        timer.cancel()
        held = devices or yoke._claim._held  # Python may raise it after claim() has returned and before the assignment
        if held is not None:
            held.release()
    assert os.environ == before
    assert yoke._claim._held is None
    while yoke.claims().claims:  # a command that was interrupted before Popen returned ends by itself: its pipes are closed
        pass
print("well", flush=True)
""")
        self.assertEqual(process.stdout.readline(), "well\n", process.stderr.read())

    def test_a_command_that_does_not_end_is_killed(self):
        self.addCleanup(setattr, yoke._claim, "_END_LIMIT_S", yoke._claim._END_LIMIT_S)
        yoke._claim._END_LIMIT_S = 0.1
        devices = yoke.claim(1)
        os.kill(devices.pid, signal.SIGSTOP)
        devices.release()
        self.wait_for_none()

    def test_it_ends_if_the_shell_that_watches_this_process_is_killed(self):
        devices = yoke.claim(1)
        devices._watcher.kill()
        machine.wait_until(lambda: not devices.is_held, "it has ended")
        self.assertEqual(self.holders(), [])
        self.assertIn("ended before it was released", str(self.error_of(devices.release)))

    def test_ctrl_c_in_a_claim_is_pythons(self):
        process = self.start("""
import sys, time, yoke
with yoke.claim(1) as devices:
    try:
        print("held", flush=True)
        sys.stdin.readline()
    except KeyboardInterrupt:
        print("goes on", devices.is_held, flush=True)
    sys.stdin.readline()
""", start_new_session=True)
        self.assertEqual(process.stdout.readline(), "held\n")
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        self.assertEqual(process.stdout.readline(), "goes on True\n")
        self.assertEqual(len(self.holders()), 1)
        os.killpg(process.pid, signal.SIGINT)
        self.assertEqual(process.wait(), -signal.SIGINT)
        self.assertEqual(self.holders(), [])

    def test_no_signal_is_blocked_or_caught(self):
        def state():
            with open("/proc/self/status") as status:
                return re.findall(r"^Sig(?:Blk|Ign|Cgt):.*", status.read(), re.MULTILINE)

        before = state()
        with yoke.claim(1):
            self.assertEqual(state(), before)

    def test_a_request_in_the_queue_ends_by_ctrl_c_and_with_its_process(self):
        with yoke.claim(4):
            for how in (signal.SIGINT, signal.SIGKILL):
                process = self.start("import yoke; yoke.claim(1, wait=True)")
                machine.wait_until(lambda: len(yoke.claims().queue) == 1, "it waits")
                self.assertIn("waiting", process.stderr.readline(), "what the command says appears while it waits")
                process.send_signal(how)
                self.assertEqual(process.wait(), -how)
                machine.wait_until(lambda: yoke.claims().queue == (), "it has left the queue")

    def test_it_waits_for_devices(self):
        process = self.start_claimer("4")
        waiting = self.start(CLAIM_AND_WAIT.format(arguments="1, wait=True"))
        machine.wait_until(lambda: len(yoke.claims().queue) == 1, "it waits")
        process.kill()
        self.assertEqual(waiting.stdout.readline(), "held 1\n")

    def test_a_forked_process_neither_releases_nor_prolongs_it(self):
        devices = yoke.claim(1)
        begin, end = os.pipe(), os.pipe()
        child = os.fork()
        if child == 0:
            devices.release()  # not its own
            is_free_for_a_claim = yoke._claim._held is None or yoke._claim._held._owner != os.getpid()
            os.write(begin[1], b"1" if is_free_for_a_claim else b"0")
            os.read(end[0], 1)
            os._exit(0)
        self.assertEqual(os.read(begin[0], 1), b"1")
        self.assertTrue(devices.is_held)
        self.assertEqual(self.holders(), [devices.pid])
        devices.release()  # although the child has the pipe, too
        self.assertEqual(self.holders(), [])
        os.write(end[1], b"1")
        os.waitpid(child, 0)
        for each in (*begin, *end):
            os.close(each)

    def test_a_claim_that_ended_early_is_noticed(self):
        for end in ("released", "over"):
            with self.assertRaises(yoke.Error) as raised:
                with yoke.claim(1, duration="1s" if end == "over" else None) as devices:
                    if end == "released":
                        self.assertEqual(self.command("release", "--force", str(devices.pid)).returncode, 0)
                    machine.wait_until(lambda: not devices.is_held, "it has ended")
            self.assertEqual(raised.exception.status, 69)
            self.assertIn("ended before it was released", str(raised.exception))
            self.assertIn("; this process goes on, though others may get the devices now", str(raised.exception))
            self.assertNotIn("SIGTERM", str(raised.exception))
            self.assertNotIn("CUDA_VISIBLE_DEVICES", os.environ)
        with self.assertRaises(ZeroDivisionError):  # which matters more
            with yoke.claim(1, duration="1s") as devices:
                machine.wait_until(lambda: not devices.is_held, "it has ended")
                1 / 0

    def test_values_with_new_lines_survive(self):
        self.addCleanup(os.environ.pop, "WEIRD")
        os.environ["WEIRD"] = "a\n\nb\n"
        self.addCleanup(os.environ.__setitem__, "PWD", os.environ.get("PWD", "/"))
        os.environ["PWD"] = "/elsewhere"  # a shell sets it to its folder
        before = dict(os.environ)
        with yoke.claim(1):
            self.assertEqual(os.environ["WEIRD"], "a\n\nb\n")
            self.assertEqual({name for name in os.environ if os.environ[name] != before.get(name)}, {"CUDA_VISIBLE_DEVICES"})

    def test_a_late_claim_is_refused_or_warned_about(self):
        class FakeTorch:
            class cuda:
                is_initialized = staticmethod(lambda: True)

        sys.modules["torch"], before = FakeTorch, sys.modules.get("torch")
        try:
            error = self.error_of(yoke.claim)
            self.assertEqual(error.status, 69)
            self.assertIn("torch has opened its devices already", str(error))
            FakeTorch.cuda.is_initialized = staticmethod(lambda: False)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                yoke.claim().release()
        finally:
            sys.modules.pop("torch")
            if before is not None:
                sys.modules["torch"] = before
        program = """
import ctypes, os, sys, yoke
driver = ctypes.CDLL(os.path.join(os.environ["YOKE_FAKES"], "libcuda.so.1"))  # as libraries of torch do
driver.cuInit(0) if sys.argv[1:] else None
yoke.claim()
"""
        done = subprocess.run([sys.executable, "-c", program], env={**os.environ, "YOKE_FAKE_GPUS": "2"},
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        done = subprocess.run([sys.executable, "-c", program, "init"], env={**os.environ, "YOKE_FAKE_GPUS": "2"},
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
        self.assertRegex(done.stderr, r"<string>:5: RuntimeWarning: the driver has been asked for devices")


if __name__ == "__main__":
    unittest.main()
