"""Runs yoke's programs, Python's torch and the driver's own tools, on the GPU or on stand-ins."""
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent.parent
LIMIT_S = 560  # docs/gpu-check.md promises less than ten minutes


class Failure(Exception):
    """Raised when a check fails, with the difference."""


class NotRun(Exception):
    """Raised when a check could not run here, with the reason."""


def expect(is_right, what):
    if not is_right:
        raise Failure(what)


def close(ours, theirs, tolerance):
    return len(ours) == len(theirs) and all(math.isclose(a, b, rel_tol=tolerance) for a, b in zip(ours, theirs))


CARD_PROBE = """
import ctypes
cuda, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(0)
works = cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
print(count.value if works else 0)
"""
# Oracle for monitors: queries NVIDIA's library without any code of yoke, and prints one line for each device.
NVML_PROBE = """
import ctypes
nvml, count = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_uint(0)
assert nvml.nvmlInit_v2() == 0 and nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0
for i in range(count.value):
    device, memory = ctypes.c_void_p(), (ctypes.c_ulonglong * 3)()
    name, uuid = ctypes.create_string_buffer(96), ctypes.create_string_buffer(96)
    assert nvml.nvmlDeviceGetHandleByIndex_v2(i, ctypes.byref(device)) == 0
    assert nvml.nvmlDeviceGetName(device, name, 96) == 0 and nvml.nvmlDeviceGetUUID(device, uuid, 96) == 0
    assert nvml.nvmlDeviceGetMemoryInfo(device, memory) == 0
    print(uuid.value.decode(), memory[0] >> 20, name.value.decode(), sep=", ")
"""


class Machine:
    def __init__(self, args):
        self.args = args
        self.manifest = json.loads((HERE / "MANIFEST.json").read_text())
        self.began = time.monotonic()
        self.has_card = not args.fake and self.count_cards() > 0
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="yoke-gpu-check-"))
        self.results, self.steps, self.peer_reason = [], {}, None

    # ---- running things --------------------------------------------------------------------------------------------

    def left(self):
        return LIMIT_S - (time.monotonic() - self.began)

    def count_cards(self):
        done = subprocess.run([sys.executable, "-c", CARD_PROBE], capture_output=True, text=True, timeout=60)
        return int(done.stdout) if done.returncode == 0 else 0

    def environment(self, stand_in, more):
        """stand_in replaces a missing GPU: "driver" (a fake driver and plug), "host" (fake GPUs) or "cpu" (no plug)."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith("YOKE_")}
        if not self.has_card:
            environment["LD_LIBRARY_PATH"] = str(HERE / "fakes")
            environment["YOKE_FAKE_NVML"] = str(HERE / "share/eight_a100.json")
            if stand_in == "driver":
                environment |= {"YOKE_FAKE_GPUS": "1", "YOKE_PLUG": str(HERE / "fakes/libyoke_fake_plug.so")}
            else:
                environment["YOKE_DEVICE"] = "cpu"
        return environment | more

    def run(self, argv, stand_in="cpu", status=(0,), timeout=120, **more):
        timeout = min(timeout, max(5, self.left()))
        shown = " ".join("PROGRAM" if "\n" in str(word) else str(word) for word in argv)
        try:
            done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, timeout=timeout,
                                  stdin=subprocess.DEVNULL, cwd=self.folder, env=self.environment(stand_in, more))
        except subprocess.TimeoutExpired:
            raise Failure(f"{shown} did not end within {timeout:.0f} s") from None
        if done.returncode not in status:
            raise Failure(f"{shown} ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-800:]}")
        return done

    def yoke(self, *words, **options):
        return self.run([HERE / "bin/yoke", *words], **options)

    def program(self, *words, ranks=0, launch=(), stand_in="cpu", **options):
        """Returns the JSON that each rank printed; without `ranks`, that of one process."""
        name = "yoke_gpu_program_on_host" if stand_in == "host" and not self.has_card else "yoke_gpu_program"
        argv = [HERE / "bin" / name, *words]
        if ranks:
            argv = [HERE / "bin/yoke", "run", "--no-prefix", *launch, "-n", str(ranks), "--", *argv]
        output = self.run(argv, stand_in, **options).stdout
        lines = [json.loads(line) for line in output.splitlines() if line[:1] == "{"]
        expect(len(lines) == max(ranks, 1), f"{len(lines)} ranks answered of {ranks or 1}")
        return lines if ranks else lines[0]

    def peer(self, *words, timeout=180):
        """Runs Python's torch on the same device. Raises NotRun if torch is missing."""
        if self.peer_reason is None:
            probe = subprocess.run([sys.executable, "-c", "import torch; print(torch.cuda.is_available())"],
                                   capture_output=True, text=True, timeout=120)
            self.peer_reason = ""
            if probe.returncode:
                self.peer_reason = "this Python cannot import torch"
            elif self.has_card and "True" not in probe.stdout:
                self.peer_reason = "this Python's torch sees no CUDA"
        if self.peer_reason:
            raise NotRun(self.peer_reason)
        device = "cuda" if self.has_card else "cpu"
        done = self.run([sys.executable, HERE / "share/peer.py", *words, "--device", device], timeout=timeout,
                        TORCHINDUCTOR_CACHE_DIR=str(self.folder / "inductor"))
        return json.loads(done.stdout.splitlines()[-1])

    def expect_on_card(self, device):
        if self.has_card:
            expect(device.startswith("cuda"), f"it ran on {device}")

    def oracle(self, what):
        try:
            return self.peer(what), "Python's torch on the same device"
        except NotRun:
            return json.loads((HERE / "share/reference.json").read_text())[what], "figures recorded on a CPU"

    def driver_devices(self):
        """Returns the devices that the driver lists, by nvidia-smi or by its library."""
        if self.has_card and shutil.which("nvidia-smi"):
            argv = ["nvidia-smi", "--query-gpu=uuid,memory.total,name", "--format=csv,noheader,nounits"]
        else:
            argv = [sys.executable, "-c", NVML_PROBE]
        lines = [line.split(", ", 2) for line in self.run(argv).stdout.splitlines()]
        return [{"uuid": uuid, "memory_mib": int(memory), "name": name} for uuid, memory, name in lines]
