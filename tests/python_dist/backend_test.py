"""The backend "yoke" of torch.distributed: what ranks do is in rank.py."""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

import torch

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


class Backend(unittest.TestCase):
    def setUp(self):
        """A copy of the package as it is built, with its entry points, because a test changes it."""
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="yoke-backend-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.folder.chmod(0o755)  # a rank of another user reads it
        built = pathlib.Path(os.environ["YOKE_PACKAGE"]).parent
        shutil.copytree(built, self.folder, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        self.environment = {**os.environ, "PYTHONPATH": str(self.folder), "OMP_NUM_THREADS": "1", "USE_LIBUV": "1"}

    def ranks(self, name, count=2, script=HERE / "rank.py"):
        """The processes of a job, without a launcher: rank 0 serves the store."""
        port, second = free_port(), free_port()
        return [subprocess.Popen([sys.executable, script, name], text=True, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT,
                                 env={**self.environment, "RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_RANK": str(rank),
                                      "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "SECOND_PORT": second})
                for rank in range(count)]

    def run_ranks(self, name, count=2):
        outputs = [(rank.communicate()[0], rank.returncode) for rank in self.ranks(name, count)]
        for rank, (text, status) in enumerate(outputs):
            self.assertEqual(status, 0, text)
            self.assertIn(f"rank {rank} passed", text)
        return "".join(text for text, _ in outputs)

    def python(self, program, **more):
        return subprocess.run([sys.executable, "-c", program], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env={**self.environment, **more})

    def test_every_collective_gives_what_gloo_gives(self):
        self.run_ranks("equals_gloo", 3)

    def test_trainings_have_the_losses_of_gloo(self):
        self.run_ranks("trainings")

    def test_groups_of_some_ranks_and_a_second_default_group(self):
        self.run_ranks("groups", 3)

    def test_what_follows_a_future_may_run_at_the_exit(self):
        """Python aborts a process whose threads use its objects then: half of these ranks, if nobody waits for them."""
        self.environment["IS_LEFT"] = "1"
        for _ in range(8):
            self.run_ranks("callbacks")

    def test_a_killed_rank_is_named(self):
        first, second, third = self.ranks("killed", 3)
        self.assertEqual(second.wait(), -9)
        second.stdout.close()
        for rank in (first, third):
            text = rank.communicate()[0]
            self.assertEqual(rank.returncode, 0, text)
            self.assertRegex(text, "RuntimeError: Connection closed by peer: rank [012] of the group has ended")

    def test_ranks_that_cannot_share_agree_on_gloo_and_say_so_once(self):
        cases = [(name, "ranks 1 have another version than [0-9.]+, or YOKE_SHARED_MEMORY=0")
                 for name in ("other_version", "unwilling")]
        if os.geteuid() == 0:
            cases.append(("other_user", "its ranks cannot share memory, because"))
        for name, reason in cases:
            text = self.run_ranks(name)
            self.assertEqual(text.count(" says: "), 1, text)
            self.assertRegex(text, f'rank 0 says: the backend "yoke" uses Gloo in a group: {reason}')
            self.assertIn("rank 0: gloo", text)
            self.assertIn("rank 1: gloo", text)

    def test_under_launchers(self):
        """The launcher's agent serves the store."""
        for launcher in ([os.environ["YOKE_COMMAND"], "run", "-n", "2", "--no-prefix", "--", sys.executable],
                         [pathlib.Path(sys.executable).parent / "torchrun", "--nproc-per-node", "2"]):
            found = subprocess.run([*launcher, HERE / "rank.py", "says_backend"], text=True, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, env=self.environment)
            self.assertEqual(found.returncode, 0, found.stdout)
            self.assertEqual(found.stdout.count(": yoke\n"), 2, found.stdout)

    def test_importing_torch_registers_the_name_and_loads_nothing(self):
        program = """
import sys, torch
print("YOKE" in torch.distributed.Backend._plugins, "libyoke_python" in open("/proc/self/maps").read(), "yoke" in sys.modules)
"""
        self.assertEqual(self.python(program).stdout, "True False False\n")
        self.assertEqual(self.python(program, TORCH_DEVICE_BACKEND_AUTOLOAD="0").stdout, "False False False\n")
        self.assertEqual(self.python("import yoke_torch" + program, TORCH_DEVICE_BACKEND_AUTOLOAD="0").stdout,
                         "True False False\n")

    def test_the_bench_measures(self):
        first, second = self.ranks("--quick", script=REPOSITORY / "bench/python_backend.py")
        self.assertEqual(second.communicate()[0], "")
        found = json.loads(first.communicate()[0])
        for part, count in [("all_reduce", 6), ("dtypes", 6), ("others", 16), ("ddp_step", 2)]:
            self.assertEqual(len(found[part]), count)

    def error_of_a_group(self):
        return self.python("""
import torch.distributed as dist
dist.init_process_group("yoke", store=dist.HashStore(), rank=0, world_size=1)
""").stdout

    def test_what_cannot_be_loaded_says_what_to_install(self):
        self.assertEqual(self.error_of_a_group(), "")
        (self.folder / "yoke_torch/libyoke_python.so").unlink()
        text = self.error_of_a_group()
        self.assertIn('the library of the backend "yoke" cannot be loaded', text)
        self.assertIn("install or build it again", text)
        built = self.folder / "yoke_torch/_built.py"
        built.write_text('VERSION = "0.1.0"\nTORCH = "1.13"\n')
        version = torch.__version__.split("+")[0]
        self.assertIn(f"was built for torch 1.13, and this is torch {version}; install or build the one for it",
                      self.error_of_a_group())


if __name__ == "__main__":
    unittest.main()
