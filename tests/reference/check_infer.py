"""Compares `yoke infer` with Python for models that only Python can make: AOTInductor's packages and traced modules.

    python check_infer.py YOKE      # a Python with torch and numpy, and a C++ compiler, of the libtorch that YOKE has

The tests of yoke have no Python torch, so this is run by hand.
"""
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch

yoke = pathlib.Path(sys.argv[1]).resolve()
folder = pathlib.Path(tempfile.mkdtemp())
torch.manual_seed(0)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.fc = torch.nn.Conv2d(3, 8, 3), torch.nn.Linear(8, 10)

    def forward(self, x):
        return self.fc(torch.relu(self.conv(x)).mean((2, 3)))


net = Net().eval()
x = numpy.random.default_rng(0).standard_normal((101, 3, 16, 16))  # float64, as NumPy makes it
numpy.save(folder / "x.npy", x)
with torch.no_grad():
    expected = net(torch.from_numpy(x).float()).numpy()

example = (torch.randn(8, 3, 16, 16),)
batch = torch.export.Dim("batch", min=2, max=4096)
any_size = torch.export.export(net, example, dynamic_shapes=({0: batch},))
of_eight = torch.export.export(net, example)
torch.jit.save(torch.jit.trace(net, example), folder / "traced.pt")
torch.jit.save(torch.jit.script(net), folder / "scripted.pt")
torch._inductor.aoti_compile_and_package(any_size, package_path=str(folder / "any-size.pt2"))
torch._inductor.aoti_compile_and_package(of_eight, package_path=str(folder / "of-eight.pt2"))
torch.export.save(any_size, folder / "exported.pt2")


def infer(model, out, *words):
    return subprocess.run([yoke, "infer", model, "--input", "x.npy", "--out", out, *words], cwd=folder,
                          capture_output=True, text=True)


failed = False
for model in ("traced.pt", "scripted.pt", "any-size.pt2", "of-eight.pt2"):
    for ranks in ("1", "2"):
        done = infer(model, f"{model}-{ranks}.npy", "-n", ranks)
        if done.returncode != 0:
            print(f"{model} on {ranks}: {done.stderr}")
            failed = True
            continue
        y = numpy.load(folder / f"{model}-{ranks}.npy")
        difference = abs(y - expected).max()
        failed |= y.shape != expected.shape or not difference < 1e-5
        print(f"{model} on {ranks}: {done.stderr.splitlines()[0]}; largest difference {difference:.1e}")
done = infer("exported.pt2", "y.npy", "-n", "1")
print(f"exported.pt2: {done.returncode}, {done.stderr}")
failed |= done.returncode != 69 or "aoti_compile_and_package" not in done.stderr
print("failed" if failed else "passed")
sys.exit(failed)
