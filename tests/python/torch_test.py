"""The functions for torch. Two GPUs of FakeTensorMode stand in for devices: it follows devices, and computes nothing."""

import contextlib
import os
import pathlib
import random
import shutil
import sys
import tempfile
import unittest
from unittest import mock

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import machine
import yoke
from yoke import _advise, _memory


def gpus(count):
    """As if torch saw so many GPUs."""
    stack = contextlib.ExitStack()
    stack.enter_context(mock.patch.object(torch.cuda, "device_count", lambda: count))
    stack.enter_context(mock.patch.object(torch.cuda, "is_available", lambda: count > 0))
    return stack


class Devices(unittest.TestCase):
    error_of = machine.Machine.error_of

    def test_try_gpu_falls_back_to_the_cpu(self):
        for count, first, second, every in [(0, "cpu", "cpu", ["cpu"]), (1, "cuda:0", "cpu", ["cuda:0"]),
                                            (2, "cuda:0", "cuda:1", ["cuda:0", "cuda:1"])]:
            with gpus(count):
                self.assertEqual((str(yoke.try_gpu()), str(yoke.try_gpu(1))), (first, second))
                self.assertEqual([str(each) for each in yoke.try_all_gpus()], every)
                self.assertEqual(yoke.num_gpus(), count)
                with mock.patch.dict(os.environ, YOKE_DEVICE="cpu"):
                    self.assertEqual([str(each) for each in yoke.try_all_gpus()], ["cpu"])
        self.assertEqual(self.error_of(yoke.try_gpu, -1).status, 64)

    def test_a_python_without_torch_is_told_so(self):
        with mock.patch.dict(sys.modules, torch=None):
            for function in (yoke.try_gpu, yoke.guardrails, lambda: yoke.seed(1), yoke.memory_summary, yoke.allow):
                error = self.error_of(function)
                self.assertEqual(error.status, 69)
                self.assertIn("needs torch", str(error))


class Seed(unittest.TestCase):
    def setUp(self):
        before = (torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark)

        def restore():
            torch.use_deterministic_algorithms(before[0])
            torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = before[1:]

        self.addCleanup(restore)

    def test_all_generators_begin_again(self):
        import numpy

        def draw():
            return random.random(), numpy.random.rand(), torch.rand(3).tolist()

        yoke.seed(5)
        first = draw()
        self.assertNotEqual(draw(), first)
        yoke.seed(5)
        self.assertEqual(draw(), first)
        torch.manual_seed(5)
        self.assertEqual(torch.rand(3).tolist(), first[2])

    def test_ranks_have_the_streams_of_cpp(self):
        # yoke/train/seed_test.cpp has the first one. The others are SplitMix64's first outputs from state 0.
        for seed, rank, stream in [(7, 0, 7), (0, 1, 0xE220A8397B1DCDAF), (0, 2, 0x6E789E6AA1B965F4), (0, 3, 0x06C45D188009454F)]:
            yoke.seed(seed, rank=rank)
            self.assertEqual(torch.initial_seed(), stream)
        yoke.seed(torch.tensor(7))  # what counts as a whole number, such as NumPy's
        self.assertEqual(torch.initial_seed(), 7)

    def test_deterministic(self):
        with mock.patch.dict(os.environ):
            os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)
            torch.backends.cudnn.benchmark = True
            yoke.seed(1)
            self.assertTrue(torch.backends.cudnn.benchmark, "without `deterministic` nothing else changes")
            yoke.seed(1, deterministic=True)
            self.assertEqual(os.environ["CUBLAS_WORKSPACE_CONFIG"], ":4096:8")
            self.assertTrue(torch.are_deterministic_algorithms_enabled() and torch.backends.cudnn.deterministic)
            self.assertFalse(torch.backends.cudnn.benchmark)
            os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":16:8"
            yoke.seed(1, deterministic=True)
            self.assertEqual(os.environ["CUBLAS_WORKSPACE_CONFIG"], ":16:8")

    def test_wrong_seeds(self):
        for seed, rank in ((-1, 0), (1 << 64, 0), (1, -1)):
            self.assertEqual(machine.Machine.error_of(self, yoke.seed, seed, rank=rank).status, 64)


class Guardrails(unittest.TestCase):
    def setUp(self):
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        mode.__enter__()
        self.addCleanup(mode.__exit__, None, None, None)
        self.a, self.b, self.host = (torch.randn(4, 4, device=device) for device in ("cuda:0", "cuda:1", "cpu"))
        self.counts = torch.ones(4, dtype=torch.long, device="cuda:0")

    def caught(self, call, **options):
        """The error's text, or "" if the guardrails let the call pass."""
        try:
            with yoke.guardrails(**options):
                call()
        except yoke.Error as error:
            self.assertEqual(error.status, 69)
            return str(error)
        except Exception as error:  # FakeTensorMode has no values; the call was let through
            self.assertIn("DataDependent" if "DataDependent" in str(type(error)) else "DynamicOutputShape", str(type(error)))
        return ""

    def test_copies(self):
        a, b, host, mask = self.a, self.b, self.host, self.a > 0
        for name, call, expected in [
                ("to the host", lambda: a.cpu(), "copies float32 [4, 4] from cuda:0 to cpu"),
                ("to a device", lambda: host.to("cuda:0"), "copies float32 [4, 4] from cpu to cuda:0"),
                ("the device without a number", lambda: host.to("cuda"), "from cpu to cuda:0"),
                ("ordinary memory waits", lambda: host.to("cuda:0", non_blocking=True), "from cpu to cuda:0"),
                ("between two", lambda: a.to("cuda:1"), "from cuda:0 to cuda:1"),
                ("between two, meant", lambda: a.to("cuda:1", non_blocking=True), ""),
                ("copy_", lambda: a.copy_(host), "from cpu to cuda:0"),
                ("copy_ from the other", lambda: a.copy_(b), "from cuda:1 to cuda:0"),
                ("copy_ between two, meant", lambda: a.copy_(b, non_blocking=True), ""),
                ("several", lambda: torch._foreach_copy_([a], [host]), "from cpu to cuda:0"),
                ("a new tensor from numbers", lambda: torch.tensor([1, 2], device="cuda:0"), "from cpu to cuda:0"),
                ("nothing to do", lambda: a.to("cuda:0"), ""),
                ("nothing to do, without a number", lambda: a.to("cuda"), ""),
                ("another dtype", lambda: a.half(), ""),
                ("an empty one", lambda: torch.empty(0, device="cuda:0").cpu(), ""),
                ("meta", lambda: torch.empty(2, device="meta").to("cuda:0"), ""),
                ("computing", lambda: (a + a) @ a, ""),
                ("writing a number by a mask", lambda: a.__setitem__(mask, 0), ""),
                ("the host's own", lambda: host.clone().to(torch.float64), "")]:
            with self.subTest(name):
                text = self.caught(call)
                self.assertIn(expected, text)
                self.assertEqual(bool(text), bool(expected))
        pinned = torch.randn(4)
        with mock.patch.object(torch.Tensor, "is_pinned", lambda self: True):
            self.assertEqual(self.caught(lambda: pinned.to("cuda:0", non_blocking=True)), "")

    def test_waits(self):
        a, counts, mask = self.a, self.counts, self.a > 0
        for name, call, waits in [
                ("item", lambda: a.sum().item(), True), ("if", lambda: bool(a.sum() > 0), True),
                ("tolist", lambda: a.tolist(), True), ("float", lambda: float(a.sum()), True),
                ("nonzero", lambda: a.nonzero(), True), ("a mask", lambda: a[mask], True),
                ("masked_select", lambda: a.masked_select(mask), True), ("unique", lambda: a.unique(), True),
                ("bincount", lambda: torch.bincount(counts), True), ("equal", lambda: a.equal(a), True),
                ("writing values by a mask", lambda: a.__setitem__(mask, torch.ones(3, device="cuda:0")), True),
                ("one_hot", lambda: torch.nn.functional.one_hot(counts), True),
                ("one_hot of a known size", lambda: torch.nn.functional.one_hot(counts, 3), False),
                ("repeats", lambda: a[0].repeat_interleave(counts), True),
                ("repeats of a known size", lambda: a[0].repeat_interleave(counts, output_size=4), False),
                ("an inverse checks its success", lambda: torch.linalg.inv(a), True),
                ("an inverse that does not", lambda: torch.linalg.inv_ex(a), False),
                ("numbers as indices", lambda: a[counts], False), ("where", lambda: torch.where(mask, a, a), False),
                ("the host's", lambda: self.host.nonzero(), False)]:
            with self.subTest(name):
                text = self.caught(call)
                self.assertEqual(bool(text), waits, text)
                if waits:
                    self.assertRegex(text, "makes the host wait for cuda:0|copies .* from cuda:0 to cpu")

    def test_kinds_can_be_left_out(self):
        self.assertEqual(self.caught(lambda: self.a.sum().item(), syncs=False), "")
        self.assertEqual(self.caught(lambda: self.a.to("cuda:1"), copies=False), "")
        self.assertIn("makes the host wait for cuda:0", self.caught(lambda: self.a.cpu(), copies=False))
        self.assertEqual(self.caught(lambda: self.a.cpu(), copies=False, syncs=False), "")

    def test_the_users_line_is_named(self):
        def my_step():
            return torch.nn.Sequential(torch.nn.Identity(), Item())(self.a)

        class Item(torch.nn.Module):
            def forward(self, x):
                return x.sum().item()  # here

        line = next(i for i, text in enumerate(pathlib.Path(__file__).read_text().splitlines(), 1) if text.endswith("# here"))
        text = self.caught(my_step)
        self.assertIn(f"called by forward ({__file__}:{line})", text)
        self.assertIn("keep the value on cuda:0 and read it after the step", text)

    def test_counting_lets_it_happen(self):
        guard = yoke.guardrails(count=True)
        self.assertIn("found no copy", str(guard))
        for i in range(3):
            with guard:
                moved = self.a.cpu()
                if i == 1:
                    self.a.to("cuda:1")
        self.assertEqual(str(moved.device), "cpu")
        first, second = guard.places
        self.assertEqual((first.kind, first.source, first.target, first.count, first.bytes), ("copy", "cuda:0", "cpu", 3, 3 * 64))
        self.assertEqual((second.target, second.count, second.function), ("cuda:1", 1, self._testMethodName))
        self.assertRegex(str(guard), r"COUNT.*\n +3  copy .*192 B.*torch_test.py")
        self.a.cpu()
        self.assertEqual(guard.places[0].count, 3, "outside of the scope nothing counts")

    def test_allow_and_nested_scopes(self):
        with yoke.guardrails():
            with yoke.allow():
                self.a.cpu()
                self.assertIn("copies", self.caught(lambda: self.a.cpu()), "the innermost scope counts")
            inner = yoke.guardrails(count=True)
            with inner:
                self.a.cpu()
            self.assertEqual(inner.places[0].count, 1)
            self.assertIn("copies", self.caught(lambda: self.a.cpu()))
            self.assertRaises(yoke.Error, self.a.cpu)  # an error leaves the scope active
            self.assertRaises(yoke.Error, self.a.cpu)
        self.a.cpu()

    def test_backward_is_guarded(self):
        device = self.a

        class Log(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, gradient):
                device.sum().item()
                return gradient

        x = torch.ones(2, requires_grad=True)
        text = self.caught(lambda: Log.apply(x).sum().backward())
        self.assertIn(f"called by backward ({__file__}:", text)
        self.assertIn("in the backward of LogBackward", text)
        self.assertIsNone(x.grad)


class Memory(unittest.TestCase):
    def test_tensors_count_once(self):
        model = torch.nn.Sequential(torch.nn.Embedding(100, 8), torch.nn.Linear(8, 100, bias=False))
        model[1].weight = model[0].weight  # tied
        model.register_buffer("mean", torch.zeros(10, dtype=torch.float64))
        optimizer = torch.optim.Adam(model.parameters())
        model(torch.tensor([1])).sum().backward()
        optimizer.step()
        view = torch.zeros(1000)[:1]
        summary = yoke.memory_summary(model, optimizer=optimizer, view=view, on_meta=torch.empty(5, device="meta"))
        by_kind = {}
        for one in summary.tensors:
            by_kind.setdefault(one.kind, []).append((one.name, one.bytes, one.shares))
        self.assertEqual(sorted(by_kind["parameters"]), [("0.weight", 3200, ""), ("1.weight", 0, "parameters 0.weight")])
        self.assertEqual(sorted(by_kind["gradients"])[0], ("0.weight", 3200, ""))
        self.assertEqual(by_kind["buffers"], [("mean", 80, "")])
        self.assertEqual(sum(size for _, size, _ in by_kind["optimizer"]), 2 * 3200 + 4)
        self.assertEqual(by_kind["view"], [("tensor", 4000, "")], "a small view keeps the whole storage")
        self.assertEqual(by_kind["on_meta"], [("tensor", 0, "")])
        self.assertRegex(str(summary), r"parameters +cpu +2 +3.1 KiB\n")
        self.assertEqual(summary.to_json()["tensors"][0]["bytes"], 4000)

    def test_the_process(self):
        before = yoke.memory_summary().process
        kept = torch.ones(64 << 20, dtype=torch.uint8)
        after = yoke.memory_summary().process
        self.assertGreater(after["anonymous_bytes"] - before["anonymous_bytes"], 60 << 20)
        self.assertGreaterEqual(after["peak_resident_bytes"], after["resident_bytes"] - (1 << 20))
        self.assertIn("No tensors were named", str(yoke.memory_summary()))
        del kept

    def test_limits_of_control_groups(self):
        root = pathlib.Path(tempfile.mkdtemp(prefix="yoke-python-"))
        self.addCleanup(shutil.rmtree, root)

        def write(name, text):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)

        write("proc/self/status", "VmRSS:\t  10 kB\n")
        write("proc/self/cgroup", "0::/a/b\n")
        write("sys/fs/cgroup/a/memory.max", "4096\n")
        write("sys/fs/cgroup/a/memory.current", "3000\n")
        write("sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 1000\n")
        write("sys/fs/cgroup/a/b/memory.max", "max\n")
        memory = _memory.process_memory(root)
        self.assertEqual((memory["resident_bytes"], memory["limit_bytes"], memory["limit_used_bytes"]), (10240, 4096, 2000))
        self.assertIsNone(memory["machine_bytes"])
        write("proc/self/cgroup", "5:memory:/c\n")
        write("sys/fs/cgroup/memory/c/memory.limit_in_bytes", "8192\n")
        write("sys/fs/cgroup/memory/memory.limit_in_bytes", str(2**63 - 4096))
        self.assertEqual(_memory.process_memory(root)["limit_bytes"], 8192)

    def test_a_devices_table(self):
        stats = {f"{key}.all.{what}": 1 << 20 for key, _ in _memory._DEVICE for what in ("current", "peak", "allocated", "freed")}
        with gpus(1), mock.patch.object(torch.cuda, "is_initialized", lambda: True), \
                mock.patch.object(torch.cuda, "memory_stats", lambda i: {**stats, "num_ooms": 3}), \
                mock.patch.object(torch.cuda, "mem_get_info", lambda i: (1 << 30, 2 << 30)):
            text = str(yoke.memory_summary())
        self.assertRegex(text, r"cuda:0 +NOW +PEAK +ADDED +REMOVED\nallocated +1.0 MiB")
        self.assertIn("out of memory: 3; the cache was flushed for an allocation: 0; free on the device: 1.0 GiB of 2.0 GiB", text)


class Advise(unittest.TestCase):
    def advise(self, model, *inputs, **options):
        advice = yoke.advise(model, *inputs, repetitions=1, **options)
        return {layer.layer: layer for layer in advice.layers}, advice

    def test_layers_and_sizes(self):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.BatchNorm2d(16), torch.nn.Conv2d(16, 16, 3, groups=16),
                                    torch.nn.Flatten(), torch.nn.Linear(16 * 16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
        layers, advice = self.advise(model, torch.randn(8, 3, 8, 8))
        self.assertEqual(list(layers), ["0", "2", "4", "6"])
        self.assertEqual(layers["0"].reason, "3 input channels: not a multiple of 8")
        self.assertEqual((layers["0"].padded_input, layers["0"].padded_weight), ((8, 8, 8, 8), (16, 8, 3, 3)))
        self.assertIn("depthwise", layers["2"].reason)
        self.assertTrue(layers["4"].fits)
        self.assertEqual(layers["6"].reason, "10 output features: not a multiple of 8")
        self.assertEqual((layers["6"].input, layers["6"].padded_weight), ((8, 64), (64, 16)))
        self.assertEqual({layer.dtype for layer in layers.values()}, {torch.bfloat16}, "under autocast")
        self.assertFalse(layers["0"].input_needs_grad)
        self.assertTrue(layers["6"].input_needs_grad and layers["6"].weight_needs_grad)
        for layer in layers.values():
            self.assertGreater(layer.milliseconds, 0)
        self.assertGreater(layers["6"].padded_milliseconds, 0)
        self.assertTrue(advice.has_backward)
        self.assertRegex(str(advice), r"layer +operation +shapes")
        self.assertIn("no tensor cores on this device", str(advice))

    def test_calls_attention_and_inference(self):
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.one = torch.nn.Linear(16, 16)

            def forward(self, x):
                x = self.one(self.one(x))
                return torch.bmm(x, x.transpose(1, 2))

        with torch.no_grad():
            layers, advice = self.advise(Net(), torch.randn(2, 6, 16), dtype=torch.float16)
        self.assertEqual(layers["one"].calls, 2)
        self.assertEqual(layers["bmm 1"].reason, "6 columns: not a multiple of 8")
        self.assertFalse(advice.has_backward)
        layers, _ = self.advise(Net(), torch.randn(2, 6, 16), dtype="float32")
        self.assertIn("computed in float32: outside autocast", layers["one"].reason)

    def test_the_model_stays_as_it_is(self):
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout())
        model(torch.randn(8, 4)).sum().backward()
        before = {name: value.clone() for name, value in model.state_dict().items()}
        gradients = [each.grad.clone() for each in model.parameters()]
        state = torch.get_rng_state()
        self.advise(model, torch.randn(8, 4, generator=torch.Generator()))
        for name, value in model.state_dict().items():
            self.assertTrue(value.equal(before[name]), name)
        for each, gradient in zip(model.parameters(), gradients):
            self.assertTrue(each.grad.equal(gradient))
        self.assertTrue(torch.get_rng_state().equal(state))

    def test_the_rule(self):
        def judged(operation, x, w, multiple=8, arguments=(), **options):
            layer = _advise.LayerAdvice("l", operation, x, w, torch.bfloat16, arguments, **options)
            _advise.judge(layer, multiple)
            return layer

        self.assertEqual(judged("attention", (2, 4, 5, 60), (2, 4, 7, 60)).padded_weight, (2, 4, 7, 64))
        transposed = judged("convolution", (1, 3, 8, 8), (3, 10, 2, 2), arguments=((1,), (0,), (1,), True, (0,), 1))
        self.assertEqual((transposed.padded_input, transposed.padded_weight), ((1, 8, 8, 8), (8, 16, 2, 2)))
        grouped = judged("convolution", (1, 6, 8, 8), (8, 3, 1, 1), arguments=((1,), (0,), (1,), False, (0,), 2))
        self.assertEqual((grouped.padded_input, grouped.padded_weight), ((1, 16, 8, 8), (16, 8, 1, 1)))
        self.assertTrue(judged("mm", (7, 16), (16, 8)).fits, "rows matter in backward alone")
        self.assertEqual(judged("mm", (7, 16), (16, 8), weight_needs_grad=True, uses_parameter=True).reason,
                         "7 rows (the batch): not a multiple of 8")

    def test_wrong_use(self):
        for options in ({"dtype": "int4"}, {"repetitions": 0}):
            error = machine.Machine.error_of(self, yoke.advise, torch.nn.Linear(1, 1), torch.ones(1, 1), **options)
            self.assertEqual(error.status, 64)


class Checkpoints(unittest.TestCase):
    def test_tensors_and_arrays_keep_their_bits(self):
        import numpy

        folder = tempfile.mkdtemp(prefix="yoke-python-")
        self.addCleanup(shutil.rmtree, folder)
        names = ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "complex64", "int64", "int32", "int16",
                 "int8", "uint8", "uint16", "uint32", "uint64", "bool"]
        bits = torch.randint(0, 2, (16 * 8,), dtype=torch.uint8)
        tensors = {name: bits[:16 * torch.empty((), dtype=getattr(torch, name)).element_size()].view(getattr(torch, name))
                   for name in names}
        tensors.update({"transposed": torch.randn(3, 4).t(), "conjugated": torch.randn(2, dtype=torch.complex64).conj(),
                        "scalar": torch.tensor(3), "empty": torch.empty(0, 3), "parameter": torch.nn.Parameter(torch.ones(2))})
        arrays = {"f": numpy.arange(6.0).reshape(2, 3), "strided": numpy.arange(6, dtype="int32")[::2],
                  "big": numpy.arange(3, dtype=">i4"), "scalar": numpy.array(True)}
        read = yoke.read_checkpoint(yoke.write_checkpoint(folder, 1, {"t": tensors, "n": arrays, "one": torch.ones(1)}))
        back = read.part("t")
        self.assertEqual(set(back), set(tensors))
        for name, value in tensors.items():
            self.assertEqual((back[name].dtype, back[name].shape), (value.dtype, value.shape))
            as_bytes = value.detach().resolve_conj().contiguous().view(-1).view(torch.uint8)
            self.assertTrue(back[name].contiguous().view(-1).view(torch.uint8).equal(as_bytes), name)
        for name, value in read.part("n", "numpy").items():
            self.assertTrue(numpy.array_equal(value, arrays[name]), name)
        self.assertEqual(read.tensor("one").tolist(), [1])
        back["float32"][0] = 7  # a private copy of the page
        self.assertEqual(yoke.read_checkpoint(read.path).step, 1)
        error = machine.Machine.error_of(self, read.tensor, "t/bfloat16", "numpy")
        self.assertEqual(error.status, 69)
        for wrong in (torch.empty(2, device="meta"), torch.eye(2).to_sparse(), torch.zeros(2, dtype=torch.complex128)):
            self.assertEqual(machine.Machine.error_of(self, yoke.write_checkpoint, folder, 2, {"x": wrong}).status, 64)


if __name__ == "__main__":
    unittest.main()
