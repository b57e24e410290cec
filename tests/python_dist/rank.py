"""What a rank of the tests does: rank.py NAME, with torchrun's environment. backend_test.py starts it.

Scripts say only init_process_group("yoke"): the package is found by its entry point.
"""

import os
import signal
import sys
import warnings

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

CPU = torch.device("cpu")
TYPES = [torch.bool, torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32,
         torch.float64, torch.complex64]
SIZES = [0, 1, 3, 1000, 5001, 300_007]  # in a slot, in one round, in many rounds; odd


def say(text):
    os.write(1, f"{text}\n".encode())  # at once, so that lines of ranks do not mix


def name_of(group=None):
    return (group or dist.group.WORLD)._get_backend(CPU).name()


def data(size, dtype, rank):
    """Small whole numbers, whose sums are exact in any order."""
    numbers = (torch.arange(size) + 7 * rank) % 5
    return numbers > 2 if dtype is torch.bool else numbers.to(dtype)


def outcome(call, *tensors):
    """What is in the tensors after a call, or the kind of its error."""
    try:
        work = call(*tensors)
        if work is not None:
            work.wait()
    except Exception as error:  # noqa: BLE001
        return [type(error).__name__]
    return list(tensors)


def same(one, other):
    return len(one) == len(other) and all(
        torch.equal(a, b) if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) else a == b
        for a, b in zip(one, other))


def collectives(rank, size, x, is_async):
    """Calls of every collective: pairs of a name and a function of a group that returns the results."""
    root = size - 1
    like = lambda count: torch.zeros(count, dtype=x.dtype)  # noqa: E731
    options = {"async_op": is_async}
    reductions = [("sum", dist.ReduceOp.SUM)] if x.numel() > 5001 else [
        (name.lower(), getattr(dist.ReduceOp, name)) for name in ("SUM", "PRODUCT", "MIN", "MAX", "BAND", "AVG")]
    for name, op in reductions:
        yield f"all_reduce {name}", lambda group, op=op: outcome(
            lambda y: dist.all_reduce(y, op, group=group, **options), x.clone())
    yield "reduce", lambda group: outcome(lambda y: dist.reduce(y, root, group=group, **options), x.clone())[:rank == root]
    yield "reduce_scatter_tensor", lambda group: outcome(
        lambda y: dist.reduce_scatter_tensor(y, x.repeat(size), group=group, **options), torch.zeros_like(x))
    yield "reduce_scatter average", lambda group: outcome(
        lambda y: dist.reduce_scatter_tensor(y, x.repeat(size), dist.ReduceOp.AVG, group=group, **options), torch.zeros_like(x))
    yield "broadcast", lambda group: outcome(lambda y: dist.broadcast(y, root, group=group, **options), x.clone())
    yield "all_gather", lambda group: outcome(
        lambda *y: dist.all_gather(list(y), x, group=group, **options), *(like(x.numel()) for _ in range(size)))
    yield "all_gather_into_tensor", lambda group: outcome(
        lambda y: dist.all_gather_into_tensor(y, x, group=group, **options), like(size * x.numel()))
    yield "gather", lambda group: outcome(
        lambda *y: dist.gather(x, list(y) if rank == root else None, root, group=group, **options),
        *(like(x.numel()) for _ in range(size)))
    yield "scatter", lambda group: outcome(
        lambda y: dist.scatter(y, [x + i if x.dtype is not torch.bool else x for i in range(size)] if rank == root else None,
                               root, group=group, **options), like(x.numel()))
    yield "all_to_all_single", lambda group: outcome(
        lambda y: dist.all_to_all_single(y, x.repeat(size), group=group, **options), like(size * x.numel()))
    # Rank r sends r + 1 + i elements to rank i.
    uneven = data(sum(rank + 1 + i for i in range(size)), x.dtype, rank)
    yield "all_to_all_single, uneven", lambda group: outcome(
        lambda y: dist.all_to_all_single(y, uneven, [i + 1 + rank for i in range(size)], [rank + 1 + i for i in range(size)],
                                         group=group, **options), like(sum(i + 1 + rank for i in range(size))))


def equals_gloo(rank, size):
    gloo = dist.new_group(backend="gloo")
    assert (name_of(), name_of(gloo)) == ("yoke", "gloo"), (name_of(), name_of(gloo))
    num_equal = 0
    for dtype in TYPES:
        for count in SIZES:
            for is_async in (False, True) if dtype is torch.float32 else (False,):
                for name, call in collectives(rank, size, data(count, dtype, rank), is_async):
                    expected, found = call(gloo), call(dist.group.WORLD)
                    if any(isinstance(each, str) for each in expected):  # Gloo refuses it
                        continue
                    assert same(expected, found), f"{name}, {count} of {dtype}: gloo has {expected}, and yoke {found}"
                    num_equal += 1
    assert num_equal > 600, num_equal
    # What Gloo refuses, messages, and what goes over Gloo.
    short = torch.ones(9, dtype=torch.int16)
    dist.all_reduce(short)
    assert short.tolist() == [size] * 9
    if rank == 0:
        dist.send(torch.arange(5), 1)
        dist.isend(torch.arange(6), 1).wait()
    elif rank == 1:
        for count in (5, 6):
            received = torch.zeros(count, dtype=torch.int64)
            dist.recv(received, 0)
            assert received.tolist() == list(range(count))
    if rank == 0:
        dist.send(torch.arange(100_000), 1, tag=1)
        dist.send(torch.ones(2), 1, tag=2)
        dist.send_object_list([{"from": 0}], 1)
    elif rank == 1:
        first, second, objects = torch.zeros(100_000, dtype=torch.int64), torch.zeros(2), [None]
        dist.recv(second, 0, tag=2)
        assert dist.recv(first, tag=1) == 0, "the rank that has sent it"
        assert second.tolist() == [1, 1] and torch.equal(first, torch.arange(100_000))
        dist.recv_object_list(objects, 0)
        assert objects == [{"from": 0}]
    received = torch.zeros(3)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.full((3,), float(rank)), (rank + 1) % size),
                                    dist.P2POp(dist.irecv, received, (rank - 1) % size)])
    for work in works:
        work.wait()
    assert received.tolist() == [(rank - 1) % size] * 3
    parts = [torch.zeros(2) for _ in range(size)]
    dist.all_to_all(parts, [torch.full((2,), 10.0 * rank + i) for i in range(size)])
    assert [each[0].item() for each in parts] == [10 * i + rank for i in range(size)]
    dist.reduce_scatter(parts[0], [torch.full((2,), float(i)) for i in range(size)])
    assert parts[0].tolist() == [rank * size] * 2
    everybody = [None] * size
    dist.all_gather_object(everybody, {"rank": rank})
    assert [each["rank"] for each in everybody] == list(range(size))
    sparse = torch.sparse_coo_tensor([[rank]], [1.0], (size,))
    dist.all_reduce(sparse)
    assert sparse.to_dense().tolist() == [1.0] * size
    dist.barrier()
    if torch.__version__ >= "2.15":
        dist.monitored_barrier()
    # Results are copied into tensors of the program by another thread, which does not know that this one has no_grad.
    columns = [torch.nn.Parameter(torch.zeros(3, 2).t()) for _ in range(size)]
    with torch.no_grad():
        dist.all_gather(columns, torch.full((2, 3), float(rank)), async_op=True).get_future().wait()
    assert [each[0, 0].item() for each in columns] == list(range(size))
    future = dist.all_reduce(torch.ones(4), async_op=True).get_future().then(lambda done: done.value()[0] * 2)
    assert future.wait().tolist() == [2.0 * size] * 4


def batches(rank, num_steps, width):
    generator = torch.Generator().manual_seed(5 + rank)
    return [torch.randn(16, width, generator=generator) for _ in range(num_steps)]


def network(width):
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(width, 200), torch.nn.ReLU(), torch.nn.Linear(200, 7))


def losses_of(model, rank, width):
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    losses = []
    for x in batches(rank, 6, width):
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def trainings(rank, size):
    """Trainings over both backends have the same losses; two ranks' sums have the same bits in any order."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    from torch.distributed.device_mesh import DeviceMesh

    gloo = dist.new_group(backend="gloo")
    found = {}
    for group in (gloo, dist.group.WORLD):
        plain = DistributedDataParallel(network(33), process_group=group, bucket_cap_mb=0.02)
        hooked = DistributedDataParallel(network(33), process_group=group)
        hooked.register_comm_hook(group, default_hooks.fp16_compress_hook)
        sharded = network(33)
        mesh = DeviceMesh.from_group(group, "cpu")
        for layer in (sharded[0], sharded[2], sharded):
            fully_shard(layer, mesh=mesh)
        found[name_of(group)] = [losses_of(each, rank, 33) for each in (plain, hooked, sharded)]
    assert set(found) == {"gloo", "yoke"}, found
    assert found["gloo"] == found["yoke"], found
    assert found["yoke"][0][-1] < found["yoke"][0][0]


def groups(rank, size):
    """Groups of parts of the ranks, several at once, and a second default group."""
    pairs = [dist.new_group([first, first + 1]) for first in range(0, size - 1)]
    mine = [(ranks, group) for ranks, group in zip(range(size - 1), pairs) if rank in (ranks, ranks + 1)]
    assert all(name_of(group) == "yoke" for _, group in mine)
    tensors = [torch.full((100_000,), float(rank)) for _ in mine]
    works = [dist.all_reduce(x, group=group, async_op=True) for x, (_, group) in zip(tensors, mine)]
    for work, x, (first, _) in zip(works, tensors, mine):
        work.wait()
        assert x[0].item() == 2 * first + 1
    alone = dist.new_group([rank], use_local_synchronization=True)
    dist.all_reduce(torch.ones(1), group=alone)
    for _, group in mine:
        dist.destroy_process_group(group)
    dist.destroy_process_group()
    os.environ["MASTER_PORT"] = os.environ["SECOND_PORT"]
    dist.init_process_group("cpu:yoke")
    x = torch.ones(2)
    dist.all_reduce(x)
    assert (name_of(), x.tolist()) == ("yoke", [size] * 2)


def killed(rank, size):
    """A rank is killed within a collective; the others say who it was. What is left in flight does not keep them."""
    x = torch.ones(1000)
    dist.all_reduce(x)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(1 << 20), async_op=True).get_future().then(lambda done: done)
    try:
        dist.all_reduce(x)
    except Exception as error:  # noqa: BLE001
        say(f"rank {rank}: {type(error).__name__}: {error}")
        os.environ["IS_LEFT"] = "1"
        return
    raise AssertionError("nothing has failed")


def says_backend(rank, size):
    x = torch.full((3,), rank + 1.0)
    dist.all_reduce(x)
    assert x.tolist() == [sum(range(1, size + 1))] * 3
    say(f"rank {rank}: {name_of()}")


def callbacks(rank, size):
    for _ in range(5):
        future = dist.all_reduce(torch.ones(300), async_op=True).get_future()
        assert future.then(lambda done: done.value()[0] * 2).wait()[0].item() == 2 * size


CASES = {"callbacks": callbacks, "equals_gloo": equals_gloo, "groups": groups, "killed": killed, "other_user": says_backend,
         "other_version": says_backend, "says_backend": says_backend, "trainings": trainings,
         "unwilling": says_backend}


def main():
    name = sys.argv[1]
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if name == "other_version" and rank == 1:
        import yoke_torch
        yoke_torch.VERSION = "0.0.1"
    if name == "unwilling" and rank == 1:
        os.environ["YOKE_SHARED_MEMORY"] = "0"
    if name == "other_user" and rank == 1:
        os.seteuid(65534)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dist.init_process_group("yoke")
    for each in caught:
        if '"yoke"' in str(each.message):
            say(f"rank {rank} says: {each.message}")
    CASES[name](rank, size)
    if "IS_LEFT" not in os.environ:
        dist.destroy_process_group()
    say(f"rank {rank} passed")


main()
