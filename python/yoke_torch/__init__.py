"""The backend "yoke" of torch.distributed: collectives of CPU tensors in memory that the ranks of a host share.

    torch.distributed.init_process_group("yoke")

`import torch` finds this package by its entry point, so a script needs nothing else. The library is loaded when the first
group is made. docs/python-backend.md has the rest.
"""

import atexit
import os
import warnings

from ._built import TORCH, VERSION

__all__ = ["register"]

LIBRARY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libyoke_python.so")


def register():
    """Makes the name "yoke" known to torch.distributed. Calling it again does nothing."""
    import torch.distributed as dist

    if not dist.is_available() or hasattr(dist.Backend, "YOKE"):
        return
    try:
        dist.Backend.register_backend("yoke", _create, extended_api=True, devices=["cpu"])
    except Exception as error:  # noqa: BLE001: a torch of the future; without this, `import torch` would fail
        warnings.warn(f'yoke: this torch does not accept the backend "yoke": {error}', RuntimeWarning, stacklevel=2)


def _load():
    """Loads the library. RuntimeError says what to install."""
    import torch

    if hasattr(torch.ops.yoke, "share_memory"):
        return
    version = torch.__version__.split("+")[0]
    if ".".join(version.split(".")[:2]) != TORCH:
        raise RuntimeError(f'the backend "yoke" that is installed, {VERSION}, was built for torch {TORCH}, and this is torch '
                           f'{version}; install or build the one for it, or use "gloo"')
    try:
        torch.ops.load_library(LIBRARY)
        # Python aborts a process that exits while what follows a future still has its objects.
        atexit.register(torch.ops.yoke.wait_for_callbacks, 5000)
    except OSError as error:
        raise RuntimeError(f'the library of the backend "yoke" cannot be loaded: {error}; it is damaged, or does not fit this '
                           f'torch, {version}: install or build it again, or use "gloo"') from error


def _create(options, _):
    """The backend of a new group: called by torch.distributed on all of its ranks."""
    import torch
    import torch.distributed as dist

    if getattr(options, "enable_reconfigure", False):
        raise ValueError('the backend "yoke" does not support enable_reconfigure; use "gloo"')
    _load()
    rank, size = options.group_rank, options.group_size
    store = dist.PrefixStore("yoke", options.store)
    if torch.ops.yoke.may_share():
        store.set(f"{VERSION}/{rank}", "1")
    gloo = dist.ProcessGroupGloo(options.store, rank, size, timeout=options.timeout)
    gloo.options.global_ranks_in_group = options.global_ranks_in_group
    gloo.options.group_name = options.group_id
    # Each rank has set its key before Gloo connected it, so all ranks find the same keys now.
    keys = [f"{VERSION}/{other}" for other in range(size)]
    if not store.check(keys):
        _say(rank, f"ranks {', '.join(str(i) for i, key in enumerate(keys) if not store.check([key]))} have another version "
                   f"than {VERSION}, or YOKE_SHARED_MEMORY=0")
        return gloo
    cpu = torch.device("cpu")
    group = dist.ProcessGroup(store, rank, size)
    group._register_backend(cpu, dist.ProcessGroup.BackendType.GLOO, gloo)
    milliseconds = round(options.timeout.total_seconds() * 1000)
    shared = dist.ProcessGroup.unbox(torch.ops.yoke.share_memory(group.boxed(), milliseconds))
    backend = shared._get_backend(cpu)
    if size > 1 and backend.name() != "yoke":
        _say(rank, "its ranks cannot share memory, because they are on several hosts, belong to several users, or the "
                   "system gives them none")
    return backend


def _say(rank, reason):
    if rank == 0:
        warnings.warn(f'the backend "yoke" uses Gloo in a group: {reason}', RuntimeWarning, stacklevel=3)


register()
