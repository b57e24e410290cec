"""How each tool claims devices, as its documentation says: one class for each."""
import json
import os
import pathlib
import shlex
import subprocess
import time

HERE = pathlib.Path(__file__).resolve().parent
HOLD = str(HERE / "hold")


class Tool:
    """A tool that runs a program on devices. `bench` has the folder, the environment and the fake machine."""
    name = package = ""
    waits = True           # a caller waits until devices are free, unless it is told otherwise
    most = 8               # the most devices that one caller can ask for
    gives_devices = True
    reads_nvidia_smi = False
    remembers_devices = False  # asks nvidia-smi once, in prepare()
    shortest = 1           # seconds that a program must have run for the tool to notice its end

    def __init__(self, bench):
        self.bench = bench
        self.prepare()

    def prepare(self):
        """Starts anew: forgets every claim of earlier situations."""

    def finish(self):
        """Ends what prepare() started."""

    def environment(self):
        return {}

    def claim(self, count, record, seconds):
        """The command line that claims `count` devices and runs the holder on them."""
        raise NotImplementedError

    def claim_and_wait(self, count, record, seconds):
        return self.claim(count, record, seconds)

    def shown_user(self):
        """What the tool's own list says about who holds devices."""
        return None

    def attack(self, uid):
        """What another user runs to remove the claim, as command lines; None if there is nothing to attack."""
        return None


class Yoke(Tool):
    name = "yoke claim"

    def prepare(self):
        self.locks = self.bench.fresh_folder("yoke", 0o1777)

    def environment(self):
        return {"YOKE_CLAIM_DIR": str(self.locks)}

    def claim(self, count, record, seconds):
        return [self.bench.yoke, "claim", "-n", str(count), "--", HOLD, record, str(seconds)]

    def claim_and_wait(self, count, record, seconds):
        return [self.bench.yoke, "claim", "-n", str(count), "--wait", "--", HOLD, record, str(seconds)]

    def shown_user(self):
        claims = json.loads(self.bench.output([self.bench.yoke, "claims", "--json"], self))
        return sorted({claim["user"] for claim in claims["claims"]})

    def attack(self, uid):
        return [["sh", "-c", f"rm -f {self.locks}/*; for file in {self.locks}/*; do echo forged >$file; done"],
                ["sh", "-c", f"{self.bench.yoke} claims --json | tr -d ' \\n' | grep -o '\"pid\":[0-9]*' | cut -d: -f2 | "
                             f"xargs -n 1 {self.bench.yoke} release --force"]]


class Nvisel(Tool):
    name, package, waits = "nvisel", "nvitop", False
    extra = ""

    def claim(self, count, record, seconds):
        return ["sh", "-c", f'devices=$(nvisel -n {count} {self.extra}) && CUDA_VISIBLE_DEVICES=$devices exec "$@"', "sh",
                HOLD, record, str(seconds)]


class GpuGate(Tool):
    name = package = "gpu-gate"
    extra = []

    def prepare(self):
        self.temporary = self.bench.fresh_folder("gpu-gate", 0o1777)

    def environment(self):
        return {"TMPDIR": str(self.temporary)}

    def claim(self, count, record, seconds):
        return ["gpu-gate", "run", "-n", str(count), *self.extra, "--", HOLD, record, str(seconds)]

    def attack(self, uid):
        return [["sh", "-c", f"rm -f {self.temporary}/gpu-gate-locks/*; rmdir {self.temporary}/gpu-gate-locks"]]


class Gflow(Tool):
    name, package = "gflow", "runqd"
    shortest = 12  # if it polls the driver (each 10 s) only before and after a job, it does not look for a next one
    homes = 0

    def prepare(self):
        self.finish()
        self.homes += 1  # the last daemon may still write into its own
        self.home = self.bench.fresh_folder(f"gflow-{self.homes}", 0o755)
        (self.home / ".bash_profile").write_text(f"PATH={self.bench.bin}:/usr/bin:/bin\n")
        self.bench.output(["gflowd", "init", "--yes", "--port", str(self.bench.port)], self)
        self.bench.output(["gflowd", "start"], self)
        time.sleep(2)

    def finish(self):
        if hasattr(self, "home"):
            self.bench.output(["gflowd", "stop"], self)
            self.bench.output(["tmux", "kill-server"], self)
            del self.home

    def environment(self):
        folders = {"HOME": "", "XDG_CONFIG_HOME": ".config", "XDG_DATA_HOME": ".local/share", "TMUX_TMPDIR": ""}
        return {name: str(self.home / below) for name, below in folders.items()}

    def claim(self, count, record, seconds):
        return ["gbatch", "--gpus", str(count), HOLD, record, str(seconds)]

    def daemon(self):
        words = self.bench.output(["gflowd", "status"], self).split()
        return int(words[words.index("PID:") + 1])

    def shown_user(self):
        lines = self.bench.output(["gqueue", "-u", "all", "-o", "csv"], self).splitlines()
        return [line.split(",")[-3] for line in lines[1:]]

    def attack(self, uid):
        other = self.bench.fresh_folder("gflow-other", 0o755)
        subprocess.run(["cp", "-r", self.home / ".config", other], check=True)
        subprocess.run(["chown", "-R", str(uid), other], check=True)
        return [["env", f"HOME={other}", f"XDG_CONFIG_HOME={other}/.config", f"XDG_DATA_HOME={other}/.local", "gcancel", "1"]]


class Genv(Tool):
    name = package = "genv"
    waits, reads_nvidia_smi, remembers_devices = False, True, True

    def prepare(self):
        self.state = self.bench.fresh_folder("genv", 0o777)
        self.bench.output(["genv", "devices"], self)

    def environment(self):
        return {"GENV_TMPDIR": str(self.state)}

    def claim(self, count, record, seconds):
        return ["bash", "-c", f'eval "$(genv shell --init)"; genv activate --gpus {count}; exec "$@"', "bash",
                HOLD, record, str(seconds)]

    def shown_user(self):
        lines = self.bench.output(["genv", "envs", "ps", "--format", "csv"], self).splitlines()
        return [line.split(",")[1] for line in lines[1:]]

    def attack(self, uid):
        return [["genv", "envs", "--reset", "ps"], ["genv", "devices", "--reset", "ps"]]


class Reslock(Tool):
    name, package, reads_nvidia_smi, remembers_devices = "reslock", "reslock[cuda]", True, True

    def prepare(self):
        self.state = self.bench.fresh_folder("reslock", 0o1777)
        self.bench.output(["reslock", "init"], self)

    def environment(self):
        return {"RESLOCK_DIR": str(self.state)}

    def claim(self, count, record, seconds):
        return ["reslock", "run", "--vram-mb-each", "60G", "--num-gpus", str(count), "--", HOLD, record, str(seconds)]

    def attack(self, uid):
        return [["reslock", "reset"], ["reslock", "init"]]


class SimpleGpuScheduler(Tool):
    name = package = "simple_gpu_scheduler"
    waits, most = False, 1

    def claim(self, count, record, seconds):
        command = shlex.join([HOLD, record, str(seconds)])
        return ["sh", "-c", f"echo {shlex.quote(command)} | simple_gpu_scheduler --gpus 0 1 2 3 4 5 6 7"]


class SafeGpu(Tool):
    name = package = "safe_gpu"
    waits, reads_nvidia_smi = False, True

    def claim(self, count, record, seconds):
        return ["python3", str(HERE / "safe_gpu_program.py"), str(count), record, str(seconds)]


class TaskSpooler(Tool):
    name = "task-spooler"
    gives_devices = False

    def prepare(self):
        self.finish()
        self.folder = self.bench.fresh_folder("tsp", 0o755)

    def finish(self):
        if hasattr(self, "folder"):
            self.bench.output(["tsp", "-K"], self)
            del self.folder

    def environment(self):
        return {"TS_SOCKET": str(self.folder / "socket"), "TMPDIR": str(self.folder)}

    def claim(self, count, record, seconds):
        return ["tsp", HOLD, record, str(seconds)]


TOOLS = [Yoke, Nvisel, GpuGate, Gflow, Genv, Reslock, SimpleGpuScheduler, SafeGpu, TaskSpooler]
