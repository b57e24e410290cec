"""Devices, claims, jobs and checkpoints of yoke, by its command. docs/python.md has all functions beside their C++ twins.

    import yoke

    with yoke.claim(2, memory="20GiB") as devices:
        yoke.run("train.py", ranks=len(devices))

Nothing but Python is needed. The functions for torch import it when they are called.
"""

from ._checkpoint import Checkpoint, newest_checkpoint, read_checkpoint, write_checkpoint
from ._claim import Claim, claim
from ._command import Error, command
from ._progress import progress
from ._records import (ClaimEntry, Claims, Device, DeviceUsage, Job, Process, QueueEntry, Rank, Usage, VisibleDevice, claims,
                       devices, jobs, visible)
from ._run import Launched, Watch, run, watch
from ._safetensors import Raw
from ._torch import advise, allow, guardrails, memory_summary, num_gpus, seed, try_all_gpus, try_gpu

__version__ = "0.1.0"  # that of the command

__all__ = ["Checkpoint", "Claim", "ClaimEntry", "Claims", "Device", "DeviceUsage", "Error", "Job", "Launched", "Process",
           "QueueEntry", "Rank", "Raw", "Usage", "VisibleDevice", "Watch", "advise", "allow", "claim", "claims", "command",
           "devices", "guardrails", "jobs", "memory_summary", "newest_checkpoint", "num_gpus", "progress", "read_checkpoint", "run", "seed",
           "try_all_gpus", "try_gpu", "visible", "watch", "write_checkpoint"]
