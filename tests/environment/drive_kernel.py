"""Starts an installed kernel as Jupyter does, and checks what it sees. Usage: drive_kernel.py SCENARIO YOKE KERNEL"""

import json
import os
import re
import signal
import subprocess
import sys
import time

from jupyter_client import KernelManager


def claims():
    text = subprocess.run([yoke, "claims", "--json", "--deadline", "60"], check=True, capture_output=True).stdout
    return json.loads(text)["claims"]


def wait_for(condition, what, limit_s=60):
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, f"after {limit_s} s: {what}"
        time.sleep(0.05)


class Session:
    """A kernel and a client of it, for a `with` statement."""

    def __init__(self, name):
        self.manager = KernelManager(kernel_name=name)

    def __enter__(self):
        self.manager.start_kernel()
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=120)
        return self

    def __exit__(self, *_):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)

    def run(self, code, timeout=240):
        """Returns the reply, and what the cell printed."""
        text = []

        def hook(message):
            content = message["content"]
            text.append(content.get("text", "") if message["msg_type"] == "stream" else "")

        while True:
            reply = self.client.execute_interactive(code, timeout=timeout, output_hook=hook)
            if reply["content"]["status"] != "aborted":  # as ipykernel answers what arrives just after a failed cell
                return reply["content"], "".join(text)

    def value(self, code):
        reply, text = self.run(code)
        assert reply["status"] == "ok", reply
        return text.strip()


PID = "import os; print(os.getpid())"
IDENTITY = "import os; print(os.getpid(), open('/proc/self/stat').read().split()[-31])"  # with the time of its start
DEVICES = "import os; print(os.environ.get('CUDA_VISIBLE_DEVICES'))"


def held_devices():
    return sorted(claim["device_uuid"] for claim in claims())


def claim(kernel):
    """The kernel sees the devices that it has claimed, and a crash gives them back."""
    with Session(kernel) as session:
        assert sorted(session.value(DEVICES).split(",")) == held_devices(), (session.value(DEVICES), claims())
        assert len(claims()) == 2 and {one["purpose"] for one in claims()} == {"notebook " + kernel}, claims()
        os.kill(int(session.value(PID)), signal.SIGKILL)
        wait_for(lambda: not claims(), "the claim of a killed kernel is still there")
        wait_for(lambda: not session.manager.is_alive(), "Jupyter does not see that the kernel has died")


def keeper(kernel):
    """The kernel ends if the process that keeps its claim is killed."""
    with Session(kernel) as session:
        pid = int(session.value(PID))
        os.kill(session.manager.provisioner.pid, signal.SIGKILL)
        wait_for(lambda: not claims(), "the claim is still there")
        wait_for(lambda: not os.path.exists(f"/proc/{pid}"), "the kernel is still there")


def serve(kernel):
    with Session(kernel) as session:
        print(session.value(PID), flush=True)
        time.sleep(1000)


def server(kernel):
    """The kernel ends, and gives its devices back, if the process that has started it is killed."""
    process = subprocess.Popen([sys.executable, __file__, "serve", yoke, kernel], stdout=subprocess.PIPE)
    pid = int(process.stdout.readline())
    assert len(claims()) == 1, claims()
    process.kill()
    wait_for(lambda: not claims(), "the claim is still there")
    wait_for(lambda: not os.path.exists(f"/proc/{pid}"), "the kernel is still there")


IN_CONTAINER = "import os; print(os.stat('/proc/self/ns/pid').st_ino, os.getcwd(), os.environ['GREETING'], " \
               "os.environ['no_proxy'], open('/data/given').read().strip(), [n for n in os.listdir('/dev') if n.startswith('nvidia')])"


def serve_container(kernel):
    with Session(kernel) as session:
        assert sorted(session.value(DEVICES).split(",")) == held_devices(), (session.value(DEVICES), claims())
        print("seen", session.value(IN_CONTAINER), flush=True)
        time.sleep(1000)


def processes_in(namespace):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{pid}/ns/pid").st_ino == namespace:
                found.append(int(pid))
        except OSError:
            pass
    return found


def is_on_a_command_line(text):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if text in file.read():
                    return True
        except OSError:
            pass
    return False


def in_container(kernel):
    """A kernel in a container sees its devices, its folders and variables, and ends with the server that is killed.

    no_proxy is a variable that clients of engines read, too."""
    process = subprocess.Popen([sys.executable, __file__, "serve_container", yoke, kernel], stdout=subprocess.PIPE)
    lines = iter(process.stdout.readline, b"")  # the kernel prints there, too
    words = next(line for line in lines if line.startswith(b"seen ")).decode().split(maxsplit=2)[1:]
    secret = words[1].split()[3]
    assert secret.startswith("hidden.") and words[1].startswith(f"/workspace a b {secret} given ["), words
    assert len(claims()) == 2 and {one["purpose"] for one in claims()} == {"notebook " + kernel}, claims()
    assert processes_in(int(words[0])), words
    assert not is_on_a_command_line(secret.encode())
    process.kill()
    wait_for(lambda: not claims(), "the claim is still there")
    wait_for(lambda: not processes_in(int(words[0])), "the container is still there")


def restart(kernel):
    """Interrupt keeps the state, restart makes a new claim, and shutdown ends it."""
    with Session(kernel) as session:
        session.value("x = 41")
        request = session.client.execute("import time\nprint('begun', flush=True)\ntime.sleep(600)")
        while True:
            message = session.client.get_iopub_msg(timeout=60)
            if message["msg_type"] == "stream" and "begun" in message["content"]["text"]:
                break
        session.manager.interrupt_kernel()
        while True:
            reply = session.client.get_shell_msg(timeout=60)
            if reply["parent_header"].get("msg_id") == request:
                break
        assert reply["content"]["ename"] == "KeyboardInterrupt", reply["content"]
        assert session.value("print(x + 1)") == "42"
        before = session.value(IDENTITY)
        session.manager.restart_kernel()
        session.client.wait_for_ready(timeout=120)
        assert session.value(IDENTITY) != before
        assert session.run("x")[0]["ename"] == "NameError"
        assert sorted(session.value(DEVICES).split(",")) == held_devices() and len(claims()) == 2, claims()
        session.manager.shutdown_kernel()
        wait_for(lambda: not claims(), "the claim of an ended kernel is still there")


def refused(kernel):
    """Without free devices, the notebook says why. --wait is no option of a kernel."""
    with Session(kernel) as session:
        reply, _ = session.run("print('x')")
        assert reply["status"] == "error" and "2 devices are wanted, and 1 is free" in reply["evalue"], reply
        assert "--wait" not in reply["evalue"] and "yoke claims" in reply["evalue"], reply
        assert claims() and all(one["purpose"] != "notebook " + kernel for one in claims()), claims()


def chosen(kernel):
    """A kernel for device 3 has that device."""
    with Session(kernel) as session:
        assert [one["device"] for one in claims()] == ["3"], claims()
        assert session.value(DEVICES).split(",") == held_devices()


def unclaimed(kernel):
    """A kernel without devices claims none, and its programs are those of the environment."""
    with Session(kernel) as session:
        assert claims() == []
        folder = session.value("import os; print(os.environ['VIRTUAL_ENV'])")
        assert session.value("import shutil; print(shutil.which('python'))") == folder + "/bin/python"


def status_line(kernel):
    """In a cell, the status of a job is a line, and nothing is drawn again; a cell that reads the output gets the ranks' alone."""
    with Session(kernel) as session:
        job = f"{yoke} run -n 2 -- sleep 2.5"  # the line comes after one second
        assert session.value("!test -t 1 && echo a terminal") == "a terminal"
        for code in ("!" + job, "%%bash\n" + job):
            text = session.value(code)
            states = [re.sub(r"[0-9.]+ s$", "TIME", line) for line in text.splitlines()]
            assert states[0] == "yoke run: 2 of 2 ranks up, TIME", (code, text)
            # Ranks that end just before the next second are a change, too.
            assert len(set(states)) == len(states) and all(re.fullmatch("yoke run: [012] of 2 ranks up, TIME", one) for one in states), text
        assert session.value(f"lines = !{job}\nprint(lines)") == "[]"


def cpp(kernel):
    """A C++ kernel keeps variables, reports errors, survives crashes, and is interrupted. The notebooks train."""
    with Session(kernel) as session:
        session.value("#include <yoke/train.h>\nint x = 41;")
        assert session.value("x + 1") == "42"
        assert session.value("double x = 1.5;\nauto twice = [](auto a) { return 2 * a; };\ntwice(x)") == "3"
        reply, _ = session.run("int y = 1;\nint z = nonsense;")
        assert (reply["status"], reply["ename"]) == ("error", "CompileError") and "cell:2:" in reply["evalue"], reply
        reply, text = session.run("x = 7; std::cout << 1; throw std::runtime_error(\"boo\"); std::cout << 2;")
        assert (reply["ename"], reply["evalue"], text) == ("std::runtime_error", "boo", "1"), (reply, text)
        interrupt_when_begun(session, "while (!yoke_cell::is_interrupted()) {}", "ok")
        assert session.value("x") == "7", "a cell that ends in time keeps all variables"
        interrupt_when_begun(session, "for (volatile int i = 0;; i = i + 1) {}", "error")
        assert session.run("x")[0]["ename"] == "CompileError", "the variables are lost"
        reply, _ = session.run("int again = 3;\nstd::abort();")
        assert reply["ename"] == "Crash" and "SIGABRT" in reply["evalue"], reply
        assert session.value("1 + 1") == "2"


def interrupt_when_begun(session, code, status):
    request = session.client.execute('std::cout << "begun" << std::endl; ' + code)
    while True:
        message = session.client.get_iopub_msg(timeout=240)
        if message["msg_type"] == "stream" and "begun" in message["content"]["text"]:
            break
    session.manager.interrupt_kernel()
    while True:
        reply = session.client.get_shell_msg(timeout=240)
        if reply["parent_header"].get("msg_id") == request:
            break
    assert reply["content"]["status"] == status, reply["content"]


scenario, yoke, kernel_name = sys.argv[1:]
globals()[scenario](kernel_name)
print("passed")
