"""devices(), visible(), claims(), jobs(), run() and watch(), and what they raise."""

import ast
import contextlib
import io
import os
import pathlib
import pickle
import signal
import sys
import sysconfig
import unittest

import machine
import yoke


class Looking(machine.Machine):
    STATE = {"devices": 4, "overrides": {"1": {"memory_mib": {"used": 1024}, "power_mw": 123000}}}

    def test_devices_have_the_commands_values(self):
        gpus = [device for device in yoke.devices() if device.vendor != "cpu"]
        self.assertEqual([gpu.index for gpu in gpus], [0, 1, 2, 3])
        self.assertEqual(gpus[1].power_mw, 123000)
        self.assertEqual(gpus[1].memory_used_bytes, 1024 << 20)
        self.assertEqual(gpus[1].json["uuid"], gpus[1].uuid)
        self.assertEqual(gpus[0].claims, ())
        with self.assertRaises(AttributeError):
            gpus[0].index = 7

    def test_visible_devices_are_in_the_order_of_a_program(self):
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(yoke.devices()[i].uuid for i in (2, 0))
        self.assertEqual([(each.ordinal, each.index) for each in yoke.visible()], [(0, 2), (1, 0)])
        self.assertEqual(yoke.visible({**os.environ, "CUDA_VISIBLE_DEVICES": ""}), [])

    def test_without_a_driver_there_is_the_cpu_and_no_exception(self):
        self.without_driver()
        self.assertEqual([device.vendor for device in yoke.devices()], ["cpu"])
        self.assertEqual(yoke.visible(), [])

    def test_a_driver_that_does_not_work_is_an_error(self):
        self.set_state({"init": "version_mismatch"})
        error = self.error_of(yoke.devices)
        self.assertEqual(error.status, 75)
        self.assertIn("driver and library have different versions", str(error))

    def test_mig_instances_are_devices_too(self):
        self.set_state({"devices": 1, "overrides": {"0": {"mig": {"instances": [{"profile": "3g.40gb", "gpu_instance": 1}]}}}})
        instances = yoke.devices()[0].instances
        self.assertEqual([type(each) for each in instances], [yoke.Device])
        self.assertTrue(instances[0].uuid.startswith("MIG-"))
        self.assertEqual(yoke.visible()[0].instance, instances[0].index)

    def test_keys_of_a_newer_command_do_no_harm(self):
        fake = self.folder / "newer"
        fake.write_text("#!/bin/sh\necho '{\"jobs\": [{\"pid\": 7, \"answers\": true, \"colour\": \"red\"}], \"new\": 1}'\n")
        fake.chmod(0o755)
        os.environ["YOKE_COMMAND"] = str(fake)
        (job,) = yoke.jobs()
        self.assertEqual((job.pid, job.num_ranks, job.json["colour"]), (7, None, "red"))


class FindingTheCommand(machine.Machine):
    def test_it_is_found_beside_this_python_before_path(self):
        command = os.environ.pop("YOKE_COMMAND")
        os.environ["PATH"] = f"{os.path.dirname(command)}{os.pathsep}{os.environ['PATH']}"
        self.assertEqual(yoke.command(), command)
        (self.folder / "yoke").symlink_to("/bin/true")
        real = sysconfig.get_path
        self.addCleanup(setattr, sysconfig, "get_path", real)
        sysconfig.get_path = lambda *words: str(self.folder)
        self.assertEqual(yoke.command(), str(self.folder / "yoke"))

    def test_errors_say_what_to_do(self):
        del os.environ["YOKE_COMMAND"]
        os.environ["PATH"] = ""
        error = self.error_of(yoke.devices)
        self.assertEqual(error.status, 127)
        self.assertIn("pip install yoke-gpu", str(error))
        os.environ["YOKE_COMMAND"] = "/no/such/file"
        self.assertIn("YOKE_COMMAND is /no/such/file", str(self.error_of(yoke.devices)))
        os.environ["YOKE_COMMAND"] = "/bin/echo"  # another project's program of that name
        self.assertIn("Another project has the same name", str(self.error_of(yoke.devices)))

    def test_the_version_is_the_commands(self):
        self.assertEqual(self.command("--version").stdout, f"yoke {yoke.__version__}\n")

    def test_an_error_crosses_processes(self):
        error = pickle.loads(pickle.dumps(yoke.Error("why", 75)))
        self.assertEqual((str(error), error.status), ("why", 75))


class Running(machine.Machine):
    def setUp(self):
        super().setUp()
        self.out, self.err = io.StringIO(), io.StringIO()  # as a notebook has them
        for redirect in (contextlib.redirect_stdout(self.out), contextlib.redirect_stderr(self.err)):
            redirect.__enter__()
            self.addCleanup(redirect.__exit__, None, None, None)

    def script(self, text):
        (self.folder / "script.py").write_text(text)
        return self.folder / "script.py"

    def test_a_script_runs_on_each_rank_with_this_python(self):
        script = self.script("import os, sys; print(os.environ['RANK'], sys.executable, sys.argv[1:])")
        self.assertEqual(yoke.run(script, "--epochs", 3, ranks=2).status, 0)
        for rank in (0, 1):
            self.assertIn(f"{rank} {sys.executable} ['--epochs', '3']", self.out.getvalue())

    def test_a_failure_is_an_error_with_the_reason(self):
        error = self.error_of(yoke.run, "sh", "-c", "echo noise >&2; exit 3")
        self.assertEqual(error.status, 3)
        self.assertRegex(str(error), r"^yoke run: rank 0 \(pid \d+\) exited with code 3$")
        self.assertIn("noise", self.err.getvalue())
        self.assertEqual(yoke.run("sh", "-c", "exit 3", check=False).status, 3)

    def test_wrong_use_has_the_commands_message(self):
        for expected, status, words, options in [
                ("cannot run 'no-such-program'", 127, ["no-such-program"], {}),
                ("give auto, gpu, cpu or N", 64, ["true"], {"ranks": "many"}),
                ("unknown option --max-restrats (did you mean `--max-restarts`?)", 64, ["true"],
                 {"options": ["--max-restrats=3"]}),
                ("options='--no-prefix'; give a list of words", 64, ["true"], {"options": "--no-prefix"}),
                ("/no/such/folder is no folder", 66, ["true"], {"cwd": "/no/such/folder"}),
                ('yoke.run("train.py"', 64, [], {})]:
            error = self.error_of(yoke.run, *words, **options)
            self.assertEqual(error.status, status)
            self.assertIn(expected, str(error))

    def jobs(self, pid):
        return [job for job in yoke.jobs() if job.pid == pid]  # tests beside this one have others

    def test_a_job_is_seen_and_stopped(self):
        job = yoke.run("sleep", "1000", ranks=2, wait=False)
        self.addCleanup(job.stop)
        machine.wait_until(lambda: [each.num_up for each in self.jobs(job.pid)] == [2], "both ranks run")
        (seen,) = self.jobs(job.pid)
        self.assertEqual((seen.pid, seen.argv, seen.num_ranks), (job.pid, ("sleep", "1000"), 2))
        self.assertEqual([rank.state for rank in seen.ranks], ["running", "running"])
        self.assertIsNone(job.status)
        self.assertEqual(repr(job), f"<yoke.Launched 'sleep 1000', pid {job.pid}, status None>")
        self.assertEqual(job.stop(), 143)
        self.assertEqual(self.jobs(job.pid), [])

    def test_ctrl_c_ends_the_job_and_is_raised(self):
        process = self.start("""
import yoke
try:
    yoke.run("sh", "-c", "echo started $$; exec sleep 1000")
except KeyboardInterrupt:
    print("interrupted", flush=True)
""", start_new_session=True)
        started, rank = process.stdout.readline().split()
        self.assertEqual(started, "started")
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        self.assertEqual(process.stdout.readline(), "interrupted\n")
        self.assertFalse(os.path.exists(f"/proc/{rank}"))

    def test_watch_of_a_program(self):
        use = yoke.watch("sh", "-c", "echo hello; exit 4", interval=0.05, goal=80)
        self.assertEqual(use.status, 4)
        self.assertEqual(use.report.goal_percent, 80)
        self.assertEqual(len(use.report.devices), 4)
        self.assertEqual(self.out.getvalue(), "hello\n")

    def test_watch_of_this_process(self):
        self.set_state({"devices": 2, "overrides": {"1": {"utilization_percent": {"gpu": 42},
                                                          "processes": [{"pid": os.getpid(), "memory_mib": 10}]}}})
        for _ in range(10):  # however short, there is a report
            with yoke.watch(interval=0.05) as use:
                pass
            (device,) = use.report.devices
            self.assertEqual((device.id, device.was_used, device.mean_utilization_percent), ("1", True, 42))

    def test_watch_refuses_what_makes_no_sense(self):
        for expected, status, words, options in [
                ("give 0.05 to 3600 seconds", 64, ["true"], {"interval": 0}),
                ("cannot run no-such-program", 127, ["no-such-program"], {}),
                ("not both", 64, ["true"], {"pid": 1})]:
            error = self.error_of(yoke.watch, *words, **options)
            self.assertEqual(error.status, status)
            self.assertIn(expected, str(error))
        self.assertEqual(self.error_of(yoke.watch(pid=4194304).__enter__).status, 66)

    def test_an_exception_within_a_watch_is_the_one_that_comes_out(self):
        with self.assertRaises(ZeroDivisionError):
            with yoke.watch():
                1 / 0


class Source(unittest.TestCase):
    FILES = sorted((machine.REPOSITORY / "python/yoke").glob("*.py"))

    def test_it_is_written_for_python_3_9(self):
        self.assertGreater(len(self.FILES), 5)
        for file in self.FILES:
            ast.parse(file.read_text(), str(file), feature_version=(3, 9))

    def test_the_import_needs_the_standard_library_alone(self):
        for file in self.FILES:
            torch_only = file.name in ("_advise.py", "_guardrails.py", "_memory.py")
            for node in ast.parse(file.read_text()).body:  # the imports of a function come later
                names = [each.name for each in node.names] if isinstance(node, ast.Import) else (
                    [node.module] if isinstance(node, ast.ImportFrom) and node.level == 0 else [])
                for name in names:
                    top = name.partition(".")[0]
                    self.assertTrue(top in stdlib_names() or (torch_only and top == "torch"), f"{file}: {name}")

    def test_every_function_has_a_docstring_and_its_types_are_shipped(self):
        for name in yoke.__all__:
            self.assertTrue(getattr(yoke, name).__doc__, name)
        self.assertTrue((machine.REPOSITORY / "python/yoke/py.typed").exists())


def stdlib_names():
    folder = sysconfig.get_path("stdlib")
    return getattr(sys, "stdlib_module_names", None) or {path.stem for path in pathlib.Path(folder).iterdir()} | set(
        sys.builtin_module_names)


if __name__ == "__main__":
    unittest.main()
