"""A machine with fake GPUs for tests of `import yoke`, and processes that use the module on it.

The tests get YOKE_COMMAND (the command) and YOKE_FAKES (the folder of the fake driver) from ctest.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "python"))


def wait_until(condition, what):
    while not condition():  # ctest ends what hangs
        time.sleep(0.005)
    return what


class Machine(unittest.TestCase):
    """Four fake GPUs, a folder of locks, and an environment that this process has during each test."""

    STATE = {"devices": 4}

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="yoke-python-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.addCleanup(lambda before=dict(os.environ): (os.environ.clear(), os.environ.update(before)))
        (self.folder / "locks").mkdir()
        (self.folder / "locks").chmod(0o1777)
        for name in ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "YOKE_SITE_CONFIG", "XDG_CONFIG_HOME"):
            os.environ.pop(name, None)
        os.environ.update(LD_LIBRARY_PATH=os.environ["YOKE_FAKES"], YOKE_CLAIM_DIR=str(self.folder / "locks"),
                          YOKE_FAKE_NVML=str(self.folder / "state.json"), HOME=str(self.folder),
                          PYTHONPATH=str(REPOSITORY / "python"))
        self.set_state(self.STATE)

    def set_state(self, state):
        (self.folder / "new.json").write_text(json.dumps(state))
        os.replace(self.folder / "new.json", self.folder / "state.json")

    def without_driver(self):
        os.environ["LD_LIBRARY_PATH"] = ""

    def command(self, *words):
        return subprocess.run([os.environ["YOKE_COMMAND"], *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              universal_newlines=True)

    def start(self, program, **options):
        """Another Python with this program, whose output is a pipe. It is killed at the end of the test."""
        process = subprocess.Popen([sys.executable, "-u", "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, universal_newlines=True, **options)
        self.addCleanup(lambda: [pipe.close() for pipe in (process.stdin, process.stdout, process.stderr)])
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def error_of(self, function, *args, **options):
        """The yoke.Error that the call raises."""
        import yoke

        with self.assertRaises(yoke.Error) as raised:
            function(*args, **options)
        self.assertIs(type(raised.exception), yoke.Error)
        return raised.exception
