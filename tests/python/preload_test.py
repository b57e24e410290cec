"""`yoke run --preload` of Python programs: forked ranks are what exec makes, and what cannot be forked is started by exec."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

YOKE = os.path.abspath(os.environ.pop("YOKE_COMMAND"))

# Prints what a program can see of its process and of Python. `local` is a module beside the script.
FACTS = """\
'''A script.'''
from __future__ import annotations
import json, os, random, resource, signal, sys, threading
import slow_module
import local
import __main__

def name(x):
    return getattr(x, "name", None)

def facts():
    fds = sorted(int(fd) for fd in os.listdir("/proc/self/fd"))
    status = dict(line.split(":\\t") for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
    return {
        "argv": sys.argv, "path0": sys.path[0], "orig": sys.orig_argv[1:] if hasattr(sys, "orig_argv") else 0,
        "main": [__name__, __file__, __main__.__file__, __spec__ is None, __package__, __doc__, sys.modules["__main__"] is __main__],
        "globals": sorted(globals()), "flags": str(sys.flags), "local": local.VALUE, "modules": sorted(m for m in sys.modules if "preload" in m),
        "streams": [[name(s), s.encoding, s.errors, s.line_buffering, s.write_through, s.mode, type(s.buffer).__name__, s.newlines]
                    for s in (sys.stdin, sys.stdout, sys.stderr)] + [sys.__stdout__ is sys.stdout],
        "stdin": sys.stdin.read(), "fds": [fd for fd in fds if fd < 200], "env": sorted(k for k in os.environ),
        "rank": [os.environ[k] for k in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "OMP_NUM_THREADS")],
        "cpus": sorted(os.sched_getaffinity(0)), "limits": resource.getrlimit(resource.RLIMIT_NOFILE),
        "signals": [str(signal.getsignal(s)).split(" at ")[0] for s in (2, 15, 10, 13)],
        "masks": [status[k] for k in ("SigBlk", "SigIgn", "SigCgt", "Threads")],
        "session": os.getsid(0) == os.getpid(), "group": os.getpgid(0) == os.getpid(), "cwd": os.getcwd(),
        "annotations": globals().get("__annotations__"),
        "thread": __import__("threading").main_thread().native_id == os.getpid(),
    }

print(json.dumps([facts(), slow_module.PID, os.getpid(), random.random()]))
print("to stderr", file=sys.stderr)
"""


class Preload(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())
                                   if hasattr(self, "enterContext") else tempfile.mkdtemp())
        (self.folder / "site").mkdir()
        self.write("site/slow_module.py", "import os\nPID = os.getpid()\n")
        self.write("local.py", "VALUE = 'beside the script'\n")

    def write(self, name, text):
        (self.folder / name).write_text(text)

    def run_yoke(self, *words, status=0):
        done = subprocess.run([YOKE, "run", "--no-prefix", *words], cwd=self.folder, capture_output=True, text=True, timeout=120,
                              stdin=subprocess.DEVNULL, env=os.environ | {"PYTHONPATH": str(self.folder / "site"), "PYTHON_EXEC": sys.executable})
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def lines(self, *words):
        return sorted((json.loads(line) for line in self.run_yoke("-n2", *words).stdout.splitlines() if line.startswith("[")),
                      key=lambda line: line[0]["rank"])

    def test_ranks_are_what_exec_makes(self):
        self.write("train.py", FACTS)
        forked = self.lines("--preload", "train.py", "an argument", "")
        executed = self.lines("train.py", "an argument", "")
        for a, b in zip(forked, executed):
            self.maxDiff = None
            self.assertEqual(a[0], b[0])
            self.assertEqual(b[1], b[2])  # by exec each rank imports for itself
        self.assertEqual(forked[0][1], forked[1][1])
        self.assertNotIn(forked[0][1], [forked[0][2], forked[1][2]])
        self.assertNotEqual(forked[0][3], forked[1][3], "random numbers of the ranks are the same")

    def test_the_script_is_that_at_which_the_kernel_arrives(self):
        (self.folder / "real/deep").mkdir(parents=True)
        (self.folder / "link").symlink_to(self.folder / "real/deep")
        for name in ("real/train.py", "train.py"):
            self.write(name, f"import slow_module, os\nprint({name!r}, __file__, slow_module.PID == os.getpid())\n")
        for path in ("link/../train.py", "./real/../real/train.py"):
            executed = self.run_yoke("-n1", path).stdout
            self.assertEqual(executed.split()[0], "real/train.py")
            self.assertEqual(self.run_yoke("--preload", "-n1", path).stdout, executed.replace("True", "False"))

    def test_a_module_and_named_modules(self):
        self.write("lab.py", "import os, sys, slow_module, __main__\nprint([sys.argv, __name__, __main__.__spec__.name, "
                             "sys.path[0]], slow_module.PID != os.getpid())\n")
        words = ["-n1", "-m", "lab", "x"]
        forked = self.run_yoke("--preload-modules", "slow_module", *words).stdout
        self.assertEqual(forked, self.run_yoke(*words).stdout.replace("False", "True"))
        self.assertIn("with -m lab what to load must be named: --preload-modules", self.run_yoke("--preload", *words).stderr)
        said = self.run_yoke("-n1", "--preload", "--", sys.executable, "-c", "print(1)").stderr
        self.assertIn("give the script itself", said)
        self.assertNotIn("libyoke_dist", said)

    def test_generators_of_libraries_are_seeded_in_each_rank(self):
        for name in ("numpy.py", "torch.py"):  # real ones take seconds, and need not be here
            self.write(f"site/{name}", "import sys, types\nseeded = []\nseed = lambda: seeded.append(1)\n"
                                       "default_generator = types.SimpleNamespace(seed=seed)\n"
                                       "sys.modules[__name__ + '.random'] = sys.modules[__name__]\n")
        self.write("train.py", "import numpy, torch\nprint(numpy.seeded, torch.seeded)\n")
        self.assertEqual(self.run_yoke("-n1", "--preload", "train.py").stdout, "[1] [1]\n")

    def test_what_modules_print_comes_once_on_standard_error(self):
        self.write("site/noisy.py", "import ctypes, os, sys, warnings\nprint('printed')\nprint('complained', file=sys.stderr)\n"
                                    "warnings.warn('warned')\nos.write(1, b'written\\n')\nctypes.CDLL(None).puts(b'by C')\n")
        self.write("train.py", "import noisy\nimport os, sys\nprint('rank', os.environ['RANK'], file=sys.stderr)\n"
                               "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0': os.kill(os.getpid(), 9)\n")
        for words in (["--preload", "train.py"], ["--preload-modules", "noisy", "train.py"]):
            done = self.run_yoke("-n2", "--max-restarts", "1", *words)
            self.assertEqual(done.stdout, "")
            for text in ("printed\n", "complained\n", "UserWarning: warned\n", "written\n", "by C\n"):
                self.assertEqual(done.stderr.count(text), 1, done.stderr)

    def test_what_modules_set_in_the_environment_is_there_in_ranks(self):
        self.write("site/sets.py", "import os\nos.environ['SET'] = 'by a module'\nos.environ['CHANGED'] = 'new'\n"
                                   "del os.environ['REMOVED']\nif 'RANK' not in os.environ:\n"
                                   "    os.environ.update(RANK='7', WORLD_SIZE='1', MASTER_PORT='1', TORCHELASTIC_RUN_ID='none')\n")
        self.write("train.py", "import sets\nimport json, os, subprocess, sys\n"
                               "of_c = subprocess.run(['env', '-0'], capture_output=True, text=True).stdout\n"
                               "names = ('SET', 'CHANGED', 'REMOVED', 'KEPT', 'WORLD_SIZE')\n"
                               "print(json.dumps([{'rank': os.environ['RANK']}, [os.environ.get(n) for n in names],\n"
                               "                  dict(v.split('=', 1) for v in of_c.split('\\0') if v) == dict(os.environ),\n"
                               "                  os.environ['MASTER_PORT'] != '1', os.environ['TORCHELASTIC_RUN_ID'] != 'none']))\n")
        os.environ.update(CHANGED="old", REMOVED="there", KEPT="kept")
        forked = self.lines("--preload", "train.py")
        self.assertEqual(forked, self.lines("train.py"))
        self.assertEqual(forked[1], [{"rank": "1"}, ["by a module", "new", None, "kept", "2"], True, True, True])

    def test_a_limit_that_a_module_changed_stays(self):
        self.write("train.py", "import limits\nimport resource\nprint(resource.getrlimit(resource.RLIMIT_NOFILE))\n")
        for limits, is_forked in (("77, hard", True), ("777, 777", True), ("5, 50", False)):
            with self.subTest(limits):
                self.write("site/limits.py", "import resource\nhard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
                                             f"resource.setrlimit(resource.RLIMIT_NOFILE, ({limits}))\n")
                forked = self.run_yoke("-n1", "--preload", "train.py")
                self.assertEqual(forked.stdout, self.run_yoke("-n1", "train.py").stdout)
                self.assertEqual("lowered the limit of open files to 50" in forked.stderr, not is_forked, forked.stderr)
                self.assertNotIn("Traceback", forked.stderr)

    def test_a_generator_that_a_module_seeded_stays_as_it_is(self):
        # The fakes have the interface and the algorithm of numpy's generator, and torch's seed.
        (self.folder / "site/numpy/random").mkdir(parents=True)
        self.write("site/numpy/__init__.py", "from . import random\n")
        self.write("site/numpy/random/__init__.py", "from random import Random\nmine = Random()\nrandom = mine.random\nseed = mine.seed\n"
                   "def get_state():\n    words = mine.getstate()[1]\n    return 'MT19937', words[:-1], words[-1], 0, 0.0\n")
        self.write("site/torch.py", "import os\nclass Generator:\n    def manual_seed(self, value): self.value = value\n"
                   "    def seed(self): self.manual_seed(int.from_bytes(os.urandom(7), 'big'))\n    def initial_seed(self): return self.value\n"
                   "default_generator = Generator()\ndefault_generator.seed()\n")
        self.write("train.py", "import lib\nimport json, numpy, os, random, sys, torch\n"
                   "print(json.dumps([{'rank': os.environ['RANK']}, random.random(), numpy.random.random(), torch.default_generator.value]))\n"
                   "assert random.__spec__.loader is random.__loader__ and 'preload' not in str([random.__loader__, *sys.meta_path])\n")
        numbers = lambda: [line[1:] for line in self.lines("--preload", "train.py")]
        self.write("site/lib.py", "import random, numpy, torch\nrandom.seed(1)\nnumpy.random.seed(1)\ntorch.default_generator.manual_seed(1)\n")
        self.assertEqual(numbers(), [line[1:] for line in self.lines("train.py")])
        self.write("site/lib.py", "import random, numpy, torch\nfor _ in range(2000):\n    random.random(), numpy.random.random()\n")
        drawn = [number for rank in numbers() for number in rank]
        self.assertEqual(len(set(drawn)), 6, "a generator that was used, and not seeded, gives all ranks the same numbers")

    def test_it_serves_restarts(self):
        self.write("train.py", "import slow_module\nimport os, sys\nprint(slow_module.PID, flush=True)\n"
                               "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0': os.kill(os.getpid(), 9)\n")
        done = self.run_yoke("-n1", "--preload", "--max-restarts", "1", "train.py")
        self.assertEqual(len(done.stdout.split()), 2)
        self.assertEqual(len(set(done.stdout.split())), 1, "the modules were imported again")

    def test_ends_as_python_does(self):
        cases = {
            "import slow_module\nimport sys, atexit\natexit.register(print, 'at exit')\ndef f():\n    raise ValueError('no')\nf()\n": 1,
            "import slow_module\nimport sys\nsys.exit(7)\n": 7,
            "import slow_module\nimport sys\nsys.exit('a text')\n": 1,
            "import slow_module\nimport sys\nsys.excepthook = lambda *a: print('hook', a[1], a[2].tb_frame.f_code.co_name)\n1 / 0\n": 1,
            "import slow_module\nraise KeyboardInterrupt\n": 130,
            "import slow_module\nimport multiprocessing as m\ndef f(x): return x + 1\n"
            "if __name__ == '__main__':\n    with m.get_context('spawn').Pool(1) as p: print(p.map(f, [1]))\n": 0,
            "import slow_module\nimport pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))) is A)\n": 0,
            "import slow_module\nthis is no Python\n": 1,
        }
        for text, status in cases.items():
            with self.subTest(text):
                self.write("train.py", text)
                # A script that cannot be compiled cannot be read for its imports either, and is started by exec.
                forked, executed = (self.run_yoke("-q", "-n1", *more, "train.py", status=status) for more in (["--preload"], []))
                own = [line for line in forked.stderr.splitlines() if "--preload" not in line]
                strip = lambda lines: [line for line in lines if "process " not in line and "pid" not in line]
                self.assertEqual(forked.stdout, executed.stdout)
                self.assertEqual(strip(own), strip(executed.stderr.splitlines()))

    def test_what_cannot_be_forked_is_started_by_exec(self):
        cases = {
            "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n": "has started 1 threads",
            "import socket\nkept = socket.socket()\n": "has opened a connection",
            "import subprocess\nkept = subprocess.Popen(['sleep', '60'])\nimport atexit\natexit.register(kept.kill)\n": "has started a process",
            "raise OSError('no such card')\n": "OSError: no such card",
            "import sys\nsys.exit(3)\n": "SystemExit: 3",
        }
        self.write("train.py", "import os, sys\ntry:\n    import odd_module\nexcept BaseException:\n    pass\nprint('ran', flush=True)\nos._exit(0)\n")
        for text, reason in cases.items():
            with self.subTest(reason):
                self.write("site/odd_module.py", text)
                done = self.run_yoke("-n1", "--preload-modules", "odd_module", "train.py")
                self.assertEqual(done.stdout, "ran\n")
                self.assertIn("--preload is not used", done.stderr)
                self.assertIn(reason, done.stderr)

    def test_only_leading_imports_are_loaded(self):
        for text in ("import os\nos.environ['X'] = '1'\nimport slow_module\n", "import os\nimport local\nimport slow_module\n",
                     "import os\ntry:\n    import slow_module\nexcept ImportError:\n    pass\n"):
            with self.subTest(text):
                self.write("train.py", text + "print(slow_module.PID == os.getpid())\n")
                self.assertEqual(self.run_yoke("-n1", "--preload", "train.py").stdout, "True\n")
        self.write("train.py", "print(1)\n")
        self.assertIn("'os;x' is not the name of a module", self.run_yoke("-n1", "--preload-modules", "os;x", "train.py").stderr)
        self.assertIn("imports nothing at its beginning", self.run_yoke("-n1", "--preload", "train.py").stderr)

    def test_nothing_outlives_the_job(self):
        self.write("train.py", "import slow_module\nprint(slow_module.PID)\n")
        loader = int(self.run_yoke("-n1", "--preload", "train.py").stdout)
        self.assertFalse(pathlib.Path(f"/proc/{loader}").exists())


if __name__ == "__main__":
    unittest.main(verbosity=2)
