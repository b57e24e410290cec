"""The checks, in the order in which they run. The results contain what a check returns, and its docstring."""
import json
import re
import subprocess
import threading
import urllib.request

from machine import HERE, Failure, Machine, NotRun, close, expect


class Checks(Machine):
    def package(self):
        """The programs start, with the libtorch that they were built with."""
        facts = self.program("facts")
        expect(facts["torch"] == self.manifest["torch"], f"libtorch is {facts['torch']}")
        return {"torch": facts["torch"], "yoke": self.yoke("--version").stdout.split()[-1]}

    def launcher(self):
        """Two ranks under `yoke run` compute every collective of Gloo on the CPU correctly."""
        return {"ranks": self.program("collectives", ranks=2, YOKE_DEVICE="cpu")[0]["ranks"]}

    def plug(self):
        """The plug loads before libtorch looks for devices, names the device, and a World chooses it."""
        facts = self.program("facts", stand_in="driver")
        expect(facts["plug"] == ("cuda" if self.has_card else "fake"), f"the plug is {facts}")
        expect(facts["libtorch_sees"] >= 1, "libtorch sees no device")
        expect(facts["device"] == "cuda:0", f"a World takes {facts['device']}")
        if self.has_card:
            names = [device["name"] for device in self.driver_devices()]
            expect(facts["name"] in names, f"libtorch calls the device {facts['name']}, and the driver {names}")
        return facts

    def no_silent_cpu(self):
        """A plug that cannot be loaded is an error; YOKE_DEVICE=cpu is obeyed."""
        done = self.run([HERE / "bin/yoke_gpu_program", "facts"], "driver", (1,), YOKE_PLUG="/nonexistent")
        expect("YOKE_DEVICE=cpu" in done.stderr, done.stderr)
        expect(self.program("facts", stand_in="driver", YOKE_DEVICE="cpu")["device"] == "cpu", "YOKE_DEVICE=cpu")
        return {}

    def nccl_one_rank(self):
        """One rank computes every collective through NCCL correctly."""
        answer = self.program("collectives", ranks=1)[0]
        self.expect_on_card(answer["device"])
        return answer

    def gloo_two_ranks(self):
        """Two ranks on one GPU average gradients over Gloo: they equal those of one process on the whole batch."""
        answer = self.program("two-ranks", ranks=2)[0]
        self.expect_on_card(answer["devices"][1])
        return answer

    def loader(self):
        """Batches through pinned memory, on the default stream and a side stream, equal the CPU's to the last bit."""
        answer = self.program("loader", stand_in="host")
        expect(answer["side_stream"] or not self.has_card, "no side stream")
        self.expect_on_card(answer["device"])
        return answer

    def optimizers(self):
        """Fused AdamW, Adam, SGD and Adagrad train as Python's do."""
        ours = self.program("trajectories", stand_in="host")
        self.expect_on_card(ours["device"])
        theirs, oracle = self.oracle("trajectories")
        for name in ("AdamW", "Adam", "SGD", "Adagrad"):
            for what, tolerance in (("losses", 1e-4), ("sums", 1e-3)):
                expect(close(ours[name][what], theirs[name][what], tolerance),
                       f"{what} of {name} are {ours[name][what]}, and Python's {theirs[name][what]}")
        return {"oracle": oracle, "last_losses": {name: ours[name]["losses"][-1] for name in ours if name != "device"}}

    def scaler(self):
        """A training in float16 with GradScaler and two overflows equals Python's: same scales, same skipped steps."""
        ours = self.program("scaled", stand_in="host")
        self.expect_on_card(ours["device"])
        theirs, oracle = self.oracle("scaled")
        expect(ours["scales"] == theirs["scales"], f"scales are {ours['scales']}, and Python's {theirs['scales']}")
        expect(close(ours["losses"], theirs["losses"], 5e-3),
               f"losses are {ours['losses']}, and Python's {theirs['losses']}")
        return {"oracle": oracle, "scales": ours["scales"]}

    def fsdp_one_rank(self):
        """A sharded model on one rank trains as the model alone does."""
        answer = self.program("sharded", ranks=1)[0]
        self.expect_on_card(answer["device"])
        return answer

    def checkpoints(self):
        """Model and optimizer, saved on the GPU and read on the CPU, and the reverse, keep all bits."""
        answer = self.program("checkpoint", self.folder / "checkpoints", stand_in="host")
        self.expect_on_card(answer["device"])
        return answer

    def devices(self):
        """`yoke devices` lists the same devices as the driver."""
        ours = json.loads(self.yoke("devices", "--json", "--vendor", "nvidia").stdout)["devices"]
        theirs = {device["uuid"]: device for device in self.driver_devices()}
        expect({device["uuid"] for device in ours} == set(theirs), f"{ours} and {theirs}")
        for device in ours:
            listed = theirs[device["uuid"]]
            expect(device["name"] == listed["name"], f"{device} and {listed}")
            expect(device["state"] not in ("lost", "error"), f"{device}")
            expect(abs(device["memory_total_bytes"] / 2**20 - listed["memory_mib"]) < 2, f"{device} and {listed}")
        return {"names": [device["name"] for device in ours]}

    def top(self):
        """`yoke top` shows each device, as a page and as JSON."""
        names = [device["name"] for device in self.driver_devices()]
        page = self.yoke("top", "--once", "--vendor", "nvidia").stdout
        rows = re.findall(r"^\s*(\d+) \S", page, re.M)
        expect([int(row) for row in rows][:len(names)] == list(range(len(names))), page)
        shown = json.loads(self.yoke("top", "--json", "--vendor", "nvidia").stdout)["devices"]
        expect([device["name"] for device in shown] == names, f"{shown}")
        return {"rows": len(rows)}

    def watch(self):
        """`yoke watch` reports a program's use of the GPU."""
        words = ["burn", "4"] if self.has_card else ["burn", "0.5"]
        name = "yoke_gpu_program" if self.has_card else "yoke_gpu_program_on_host"
        file = self.folder / "watch.json"
        self.yoke("watch", "--vendor", "nvidia", "--json", "-o", file, "--", HERE / "bin" / name, *words)
        report = json.loads(file.read_text())
        expect(len(report["devices"]) == len(self.driver_devices()), f"{report['devices']}")
        device = report["devices"][0]
        if self.has_card:
            expect(device["p95_utilization_percent"] > 50, f"{device}")
        return {key: device[key] for key in ("was_used", "p95_utilization_percent", "program_memory_peak_bytes")}

    def doctor(self):
        """`yoke doctor` finds the driver and its GPUs, and reports what fails."""
        done = self.yoke("doctor", "--json", stand_in="driver", status=(0, 1))
        findings = json.loads(done.stdout)["findings"]
        states = {finding["id"]: finding["status"] for finding in findings}
        for name in ("gpus", "nvidia-driver", "libcuda"):
            expect(states.get(name) == "ok", f"{name}: {[f for f in findings if f['id'] == name]}")
        expect(not self.has_card or states.get("runtime") == "ok", f"{findings}")
        return {"not_ok": [f"{f['id']}: {f['found']}" for f in findings if f["status"] in ("warn", "fail")]}

    def metrics(self):
        """`yoke metrics --serve` gives Prometheus every device."""
        argv = [HERE / "bin/yoke", "metrics", "--serve", "127.0.0.1:0", "--vendor", "nvidia"]
        command = subprocess.Popen(argv, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   env=self.environment("cpu", {}))
        patience = threading.Timer(30, command.kill)
        patience.start()
        try:
            line = command.stdout.readline()
            address = re.search(r"127\.0\.0\.1:\d+", line)
            expect(address, f"yoke metrics --serve said {line!r}")
            without_proxy = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with without_proxy.open(f"http://{address[0]}/metrics", timeout=20) as answer:
                text = answer.read().decode()
        finally:
            patience.cancel()
            command.terminate()
            command.wait(20)
        uuids = set(re.findall(r'yoke_device_info\{.*?uuid="([^"]+)"', text))
        expect(uuids == {device["uuid"] for device in self.driver_devices()}, text[:800])
        return {"samples": sum(1 for line in text.splitlines() if line[:1] != "#")}

    def preload(self):
        """Under `yoke run --preload`, forked ranks each load the plug and use the driver."""
        answers = self.program("facts", ranks=2, launch=["--preload"], stand_in="driver")
        for facts in answers:
            expect(facts["plug"] == ("cuda" if self.has_card else "fake"), f"{facts}")
            expect(facts["device"].startswith("cuda"), f"{facts}")
        expect(answers[0]["address"] == answers[1]["address"], f"the ranks were started by exec, not forked: {answers}")
        return {"devices": [facts["device"] for facts in answers]}

    def recorded_steps(self):
        """Steps of train::Recorded, as CUDA graphs, give the losses of the steps themselves; times of both."""
        figures = {}
        for model in ("mlp",) if self.args.quick else ("mlp", "transformer"):
            stand_in = "host" if model == "mlp" else "cpu"  # the fake GPUs have no arange
            answer = self.program("recorded", model, 300 if self.has_card else 10, stand_in=stand_in)
            self.expect_on_card(answer["device"])
            figures[model] = {key: answer[key] for key in ("eager_ms", "recorded_ms", "times_better")}
        return figures

    def step_times(self):
        """Times training steps of five networks and those of PyTorch, eager and compiled; the losses are equal."""
        num_steps = 500 if self.has_card else 10
        missing = []
        for model in ("mlp",) if self.args.quick else ("mlp", "mlp1024", "cnn", "resnet20", "transformer"):
            sides = self.steps[model] = {}
            ours = self.program("steps", model, num_steps)
            self.expect_on_card(ours["device"])
            sides["yoke"] = {key: ours[key] for key in ("median_ms", "worst_ms")}
            for side, words in (("eager", ()), ("compiled", ("--compile",))):
                try:
                    if self.left() < 60:
                        raise NotRun("the ten minutes are over")
                    if side == "compiled" and not self.has_card:
                        raise NotRun("compiling takes minutes on a CPU")
                    theirs = self.peer("steps", model, str(num_steps), *words, timeout=120)
                except (NotRun, Failure) as error:
                    if side == "eager" and isinstance(error, Failure):
                        raise
                    missing.append(f"{side} {model}: {error}")
                    continue
                expect(close(ours["losses"], theirs["losses"], 2e-2),
                       f"{model}: losses are {ours['losses']}, and {side} {theirs['losses']}")
                sides[side] = {key: theirs[key] for key in ("median_ms", "worst_ms")}
                sides[side]["times_better"] = theirs["median_ms"] / ours["median_ms"]
        if missing:
            raise NotRun("without " + "; ".join(missing))
        return {}

    CHECKS = {  # name: whether the check needs a GPU
        "package": False, "launcher": False, "plug": True, "no_silent_cpu": True, "nccl_one_rank": True,
        "gloo_two_ranks": True, "loader": True, "optimizers": True, "scaler": True, "fsdp_one_rank": True,
        "checkpoints": True, "devices": True, "top": True, "watch": True, "doctor": True, "metrics": True,
        "preload": True, "recorded_steps": True, "step_times": True}
