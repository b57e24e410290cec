"""What people type in Python today, and its twin (the last table of docs/python.md): each twin is run, and does it."""

import contextlib
import io
import os
import re
import subprocess
import sys
import unittest

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import machine
import yoke


class People(machine.Machine):
    def python(self, program):
        """What a new Python prints."""
        return subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.PIPE,
                              universal_newlines=True).stdout

    def subset(self):
        """os.environ["CUDA_VISIBLE_DEVICES"] = "0,1" before `import torch`, by the numbers of nvidia-smi."""
        said = self.python("""
import os, yoke
with yoke.claim(devices="2,3"):
    import torch, subprocess
    print(os.environ["CUDA_VISIBLE_DEVICES"])
    print([each.index for each in yoke.visible()])
""").splitlines()
        self.assertEqual(said[0], ",".join(yoke.devices()[i].uuid for i in (2, 3)))
        self.assertEqual(said[1], "[2, 3]")

    def what_is_there(self):
        """torch.cuda.is_available(), device_count(), get_device_name(0)"""
        self.assertEqual([each.name for each in yoke.visible()], ["NVIDIA A100-SXM4-80GB"] * 4)
        self.assertEqual(yoke.num_gpus(), torch.cuda.device_count() if torch.cuda.is_available() else 0)
        self.without_driver()
        self.assertEqual(yoke.visible(), [])

    def who_uses_them(self):
        """nvidia-smi, gpustat; kill -9 PID of a GPU process"""
        self.set_state({"devices": 1, "overrides": {"0": {"processes": [{"pid": os.getpid(), "memory_mib": 10}]}}})
        self.assertEqual([each.pid for each in yoke.devices()[0].processes], [os.getpid()])

    def runs_anywhere(self):
        """try_gpu(i), try_all_gpus()"""
        x = torch.ones(2, device=yoke.try_gpu(7))
        self.assertEqual(str(x.device), "cpu")
        self.assertGreaterEqual(len(yoke.try_all_gpus()), 1)

    def meant_copies(self):
        """Y.cuda(0), X + Y on two devices, printing a loss in each step"""
        with FakeTensorMode():
            x, y = torch.ones(2, device="cuda:0"), torch.ones(2, device="cpu")
            for call in (lambda: y.cuda(0), lambda: x + y.to(x.device), lambda: x.sum().item()):
                with self.assertRaises(yoke.Error):
                    with yoke.guardrails():
                        call()

    def same_run_twice(self):
        """set_seed(n)"""
        yoke.seed(3)
        first = torch.rand(4)
        yoke.seed(3)
        self.assertTrue(torch.rand(4).equal(first))

    def where_the_memory_is(self):
        """torch.cuda.memory_summary()"""
        model = torch.nn.Linear(1000, 1000)
        self.assertRegex(str(yoke.memory_summary(model)), r"parameters +cpu +2 +3.8 MiB")

    def data_parallel(self):
        """nn.DataParallel(model); init_process_group and DDP(model); torch.cuda.set_device(1), set_num_threads(8)"""
        script = self.folder / "train.py"
        script.write_text("""
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1, bias=False))
model(torch.full((1, 1), float(dist.get_rank()))).sum().backward()
print("gradient", model.module.weight.grad.item(), "of rank", os.environ["LOCAL_RANK"],
      "threads", torch.get_num_threads() == int(os.environ["OMP_NUM_THREADS"]), flush=True)
dist.destroy_process_group()
""")
        with contextlib.redirect_stdout(io.StringIO()) as out:
            yoke.run(script, ranks=2)
        for rank in (0, 1):
            self.assertIn(f"gradient 0.5 of rank {rank} threads True", out.getvalue())

    def is_it_busy(self):
        """how many num_workers? nvprof, torch.utils.bottleneck"""
        self.set_state({"devices": 1, "defaults": {"utilization_percent": {"gpu": 55},
                                                   "processes": [{"pid": os.getpid(), "memory_mib": 10}]}})
        with yoke.watch(interval=0.05) as use:
            torch.ones(2)
        self.assertEqual(use.report.devices[0].mean_utilization_percent, 55)

    def tensor_cores(self):
        """filters and batch divisible by 8, apex"""
        (layer,) = yoke.advise(torch.nn.Linear(16, 10), torch.randn(8, 16), repetitions=1).layers
        self.assertEqual(layer.reason, "10 output features: not a multiple of 8")

    LINES = {  # beginnings of the lines of docs/python.md, and what runs the twin of each
        "`os.environ[": subset, "`torch.cuda.is_available()`": what_is_there, "`nvidia-smi` or": who_uses_them,
        "`try_gpu(i)`": runs_anywhere, "`Y.cuda(0)`": meant_copies, "`set_seed(n)`": same_run_twice,
        "`torch.cuda.memory_summary()`": where_the_memory_is, "`kill -9 PID`": who_uses_them, "`nn.DataParallel`": data_parallel,
        "`torch.cuda.set_device(1)`": data_parallel, "how many `num_workers`?": is_it_busy, "filters and batch": tensor_cores}

    def test_each_line_has_its_twin(self):
        page = (machine.REPOSITORY / "docs/python.md").read_text()
        table = page[page.index("| today | with yoke |"):].splitlines()[2:]
        lines = [re.match(r"\| (.*?) \|", line)[1] for line in table if line.startswith("|")]
        self.assertEqual(len(lines), len(self.LINES))
        run = set()
        for line, (beginning, twin) in zip(lines, self.LINES.items()):
            self.assertTrue(line.startswith(beginning), f"{line} has no test here")
            if twin not in run:
                with self.subTest(line):
                    self.set_state(self.STATE)
                    os.environ["LD_LIBRARY_PATH"] = os.environ["YOKE_FAKES"]
                    twin(self)
            run.add(twin)


if __name__ == "__main__":
    unittest.main()
