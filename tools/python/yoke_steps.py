"""Finds the ends of training steps in a program that uses torch's optimizers."""

import importlib.abc
import importlib.util
import sys

_observers = []
_counter = None


class StepCounter:
    """The rule of yoke/train/watch/detail/step_counter.h."""

    def __init__(self):
        self.leader = None
        self.others = set()  # optimizers that have stepped since the leader's last step
        self.count = 0

    def end_of(self, optimizer):
        """Returns the number of the training's step, from 0, if the step of this optimizer ends it; otherwise None."""
        if self.leader is not None and optimizer != self.leader and optimizer not in self.others:
            self.others.add(optimizer)
            return None
        self.leader = optimizer
        self.others.clear()
        self.count += 1
        return self.count - 1


def add_observer(observer):
    """`observer(step)` is called at the end of each step, on the thread that called the optimizer."""
    _observers.append(observer)


def _after_optimizer(optimizer, _args, _kwargs):
    step = _counter.end_of(id(optimizer))
    if step is not None:
        for observer in _observers:
            observer(step)


class _Finder(importlib.abc.MetaPathFinder):
    """Calls `_hook` when the program has imported torch's optimizers. Programs without torch pay nothing."""

    NAME = "torch.optim.optimizer"

    def find_spec(self, fullname, path, target=None):
        if fullname != self.NAME:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                _hook(module)

            spec.loader.exec_module = exec_module
        return spec


def _hook(module):
    global _counter
    _counter = StepCounter()
    module.register_optimizer_step_post_hook(_after_optimizer)


def watch_imports():
    if _observers:
        sys.meta_path.insert(0, _Finder())
