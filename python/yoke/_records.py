"""What the command says, as frozen records. Units are in the names, as in the command's JSON."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Tuple, Type, TypeVar

from . import _command

R = TypeVar("R", bound="Record")


@dataclass(frozen=True)
class Record:
    """An object of the command's JSON. A key that a command does not print is None; those of a newer one are in `json`."""

    json: Dict[str, Any] = field(repr=False, compare=False)  #: the whole object

    @classmethod
    def of(cls: Type[R], value: Dict[str, Any]) -> R:
        values: Dict[str, Any] = {"json": value}
        for one in dataclasses.fields(cls):
            if one.name == "json":
                continue
            given, inner = value.get(one.name), one.metadata.get("of")
            if isinstance(given, list):
                given = tuple(inner.of(each) if inner else each for each in given)
            values[one.name] = given
        return cls(**values)


def _list_of(inner: Any = None) -> Any:
    return field(default=None, metadata={"of": inner})


@dataclass(frozen=True)
class Process(Record):
    """A process on a device."""

    pid: int
    user: Optional[str]
    command: Optional[str]
    type: Optional[str]
    memory_bytes: Optional[int]


@dataclass(frozen=True)
class ClaimEntry(Record):
    """A device that somebody has claimed, or a share of it. `since` and `until` are Unix times in seconds."""

    device: Optional[str]
    device_uuid: Optional[str]
    user: Optional[str]
    pid: Optional[int]
    since: Optional[int]
    until: Optional[int]
    purpose: Optional[str]
    idle_seconds: Optional[int]
    shared_bytes: Optional[int]
    remark: Optional[str]


@dataclass(frozen=True)
class Device(Record):
    """An accelerator of this machine, or its CPU (`vendor` is "cpu"). A value that the driver does not tell is None."""

    index: int
    vendor: str
    state: str  #: "free", "busy", ...
    reason: Optional[str]
    uuid: Optional[str]
    name: Optional[str]
    pci_bus_id: Optional[str]
    memory_total_bytes: Optional[int]
    memory_used_bytes: Optional[int]
    memory_free_bytes: Optional[int]
    utilization_percent: Optional[float]
    temperature_celsius: Optional[float]
    power_mw: Optional[int]
    processes: Optional[Tuple[Process, ...]] = _list_of(Process)
    claims: Optional[Tuple[ClaimEntry, ...]] = _list_of(ClaimEntry)
    instances: Optional[Tuple["Device", ...]] = None  #: MIG devices


@dataclass(frozen=True)
class VisibleDevice(Record):
    """A device that a program which starts now would see. `ordinal` is its number there, as in "cuda:0"."""

    index: int
    instance: Optional[int]
    visible: bool
    ordinal: Optional[int]
    certain: bool
    vendor: str
    name: Optional[str]
    uuid: Optional[str]
    pci_bus_id: Optional[str]
    reason: Optional[str]


@dataclass(frozen=True)
class QueueEntry(Record):
    """A request that waits for devices."""

    user: Optional[str]
    pid: Optional[int]
    num_devices: int
    position: int
    since: Optional[int]
    expected_wait_seconds: Optional[int]
    is_stopped: Optional[bool]
    shared_bytes: Optional[int]
    purpose: Optional[str]


@dataclass(frozen=True)
class Claims(Record):
    """Who has which device, who waits, and what is reserved (as in `yoke claims --json`)."""

    claims: Tuple[ClaimEntry, ...] = _list_of(ClaimEntry)
    queue: Tuple[QueueEntry, ...] = _list_of(QueueEntry)
    reservations: Tuple[Dict[str, Any], ...] = _list_of()


@dataclass(frozen=True)
class Rank(Record):
    """A rank of a job. `state` is "starting", "running", "exited" or "killed"; `pid` is None before its start."""

    rank: int
    local_rank: Optional[int]
    host: Optional[str]
    pid: Optional[int]
    state: str
    exit_code: Optional[int]
    signal: Optional[int]


@dataclass(frozen=True)
class Job(Record):
    """A job of `yoke run` or `yoke train` on this machine. If its launcher does not answer, only the first three are known."""

    pid: int
    user: Optional[str]
    answers: bool
    name: Optional[str]
    run_id: Optional[str]
    argv: Optional[Tuple[str, ...]]
    folder: Optional[str]
    host: Optional[str]
    started_at_seconds: Optional[float]
    num_ranks: Optional[int]
    num_up: Optional[int]
    num_restarts: Optional[int]
    max_restarts: Optional[int]
    is_stopping: Optional[bool]
    ranks: Optional[Tuple[Rank, ...]] = _list_of(Rank)


@dataclass(frozen=True)
class DeviceUsage(Record):
    """How a device was used while a program ran: percentages of time-weighted samples, for the whole device."""

    id: str
    uuid: Optional[str]
    name: Optional[str]
    was_used: bool  #: the driver showed the program on it
    mean_utilization_percent: Optional[float]
    p5_utilization_percent: Optional[float]
    p50_utilization_percent: Optional[float]
    p95_utilization_percent: Optional[float]
    under_goal_percent: Optional[float]
    mean_utilization_while_used_percent: Optional[float]
    memory_total_bytes: Optional[int]
    memory_peak_bytes: Optional[int]
    program_memory_peak_bytes: Optional[int]
    mean_power_mw: Optional[float]
    peak_power_mw: Optional[float]
    energy_mj: Optional[float]


@dataclass(frozen=True)
class Usage(Record):
    """The report of `yoke watch`."""

    program: str
    duration_seconds: float
    num_samples: int
    goal_percent: float
    devices: Tuple[DeviceUsage, ...] = _list_of(DeviceUsage)
    notes: Tuple[str, ...] = _list_of()


def devices() -> List[Device]:
    """The devices of this machine with who uses them, whatever CUDA_VISIBLE_DEVICES says. Without a GPU, only the CPU.

    In C++: yoke::device::list(). Raises Error (75) if a driver does not work. A GPU that does not answer has that `state`.
    """
    return [_device(each) for each in _command.ask(["devices"], also=[66])["devices"]]  # 66: no GPU


def _device(value: Dict[str, Any]) -> Device:
    device = Device.of(value)
    instances = value.get("instances")  # objects like this one
    return device if not instances else dataclasses.replace(device, instances=tuple(map(_device, instances)))


def visible(environment: Optional[Dict[str, str]] = None) -> List[VisibleDevice]:
    """The GPUs that a program sees which starts with `environment` (os.environ unless given), by its numbers: [0] is cuda:0.

    An empty list where there is no GPU. In C++: yoke::device::visibility(). Raises Error (75) if a driver does not answer.
    """
    found = [VisibleDevice.of(each) for each in _command.ask(["visible"], environment)["devices"]]
    return [each for each in found if each.visible]


def claims() -> Claims:
    """Who has claimed which device, who waits for devices, and what is reserved."""
    return Claims.of(_command.ask(["claims"]))


def jobs() -> List[Job]:
    """Your jobs of `yoke run` and `yoke train` on this machine; those of all users for root."""
    return [Job.of(each) for each in _command.ask(["jobs"])["jobs"]]
