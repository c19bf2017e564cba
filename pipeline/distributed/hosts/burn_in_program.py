"""Measures a host. `pipeline.preflight --burn-in` sends this file to every host: python -c FILE TASK.

One process for each slot of the hostfile multiplies matrices for some time. Then the hosts form pairs, each host with
each other one, and the processes with the same number on two hosts add up a tensor (all-reduce). The file imports only
torch and the standard library. The task is a JSON object with the fields of `Task`. Rank 0 prints one line of JSON: a
list of `Measured`, by rank.
"""

import json
import os
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any

ROUNDS = 5
"""All-reduces of a pair; the median is taken."""
_JOIN_SECONDS = 120


@dataclass(frozen=True)
class Task:
    """What a host is told.

    Attributes:
        host: number of this host.
        slots: processes of each host.
        address, port: where rank 0 listens.
        seconds: of matrix products.
        accelerator: "cpu" or "cuda".
    """

    host: int
    slots: list[int]
    address: str
    port: int
    seconds: float
    accelerator: str


@dataclass(frozen=True)
class Measured:
    """What one process measured.

    Attributes:
        tflops: 1e12 operations a second of matrix products, in the second half of the time: a device that gets too hot
            is slow then.
        gigabytes_per_second: of an all-reduce with the process of each other host, by the number of that host.
    """

    tflops: float
    gigabytes_per_second: dict[str, float] = field(default_factory=dict)


def pairs(hosts: int) -> list[list[tuple[int, int]]]:
    """Rounds in which each host meets one other host, until each has met all others (the circle method)."""
    numbers = list(range(hosts + hosts % 2))
    rounds = []
    for _ in range(len(numbers) - 1):
        half = len(numbers) // 2
        met = [(min(pair), max(pair)) for pair in zip(numbers[:half], reversed(numbers[half:]))]
        rounds.append([pair for pair in met if pair[1] < hosts])
        numbers = [numbers[0], numbers[-1], *numbers[1:-1]]
    return rounds


def multiply(torch: Any, device: Any, seconds: float) -> float:
    """1e12 operations a second of matrix products on `device`, over the second half of so many seconds."""
    on_cpu = device.type == "cpu"
    size = 512 if on_cpu else 8192
    kind = torch.float32 if on_cpu else torch.bfloat16
    left, right = (torch.randn(size, size, dtype=kind, device=device) for _ in range(2))  # (size, size)

    def finish() -> float:
        if not on_cpu:
            torch.cuda.synchronize(device)
        return time.perf_counter()

    began = finish()
    half, count = began, 0
    while True:
        for _ in range(1 if on_cpu else 20):
            torch.mm(left, right)
        now, count = finish(), count + 1
        if half == began and now - began >= seconds / 2:
            half, count = now, 0
        elif half > began and now - began >= seconds:
            break
    return float(count * (1 if on_cpu else 20) * 2 * size**3 / (now - half) / 1e12)


def all_reduce(torch: Any, peer: int, device: Any) -> float:
    """Gigabytes a second of an all-reduce with the rank `peer`: the size of the tensor by the median time.

    The two ranks exchange their tensors and add them up. A group for each pair is avoided: torch gives groups that only
    their members make a name by the number of their groups, and the members may have different numbers.
    """
    dist = torch.distributed
    mine = torch.ones(1 << (20 if device.type == "cpu" else 26), device=device)  # (2**20,) or (2**26,)
    theirs, total = torch.empty_like(mine), torch.empty_like(mine)
    times = []
    for _ in range(ROUNDS + 1):  # the first one connects
        began = time.perf_counter()
        exchange = [dist.P2POp(dist.isend, mine, peer), dist.P2POp(dist.irecv, theirs, peer)]
        for request in dist.batch_isend_irecv(exchange):
            request.wait()
        torch.add(mine, theirs, out=total)
        if device.type != "cpu":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - began)
    return float(4 * mine.numel() / sorted(times[1:])[ROUNDS // 2] / 1e9)


def measure(task: Task, local_rank: int) -> list[Measured] | None:
    """The part of one process. Returns what all ranks measured, on rank 0."""
    import torch
    import torch.distributed as dist

    on_cpu = task.accelerator == "cpu"
    device = torch.device("cpu") if on_cpu else torch.device("cuda", local_rank)
    if on_cpu:
        torch.set_num_threads(1)
    else:
        torch.cuda.set_device(device)
    first = [sum(task.slots[:host]) for host in range(len(task.slots))]
    dist.init_process_group(
        "gloo" if on_cpu else "nccl",
        init_method=f"tcp://{task.address}:{task.port}",
        rank=first[task.host] + local_rank,
        world_size=sum(task.slots),
        timeout=timedelta(seconds=_JOIN_SECONDS + task.seconds),
    )
    dist.barrier()
    tflops = multiply(torch, device, task.seconds)
    found: dict[str, float] = {}
    for meetings in pairs(len(task.slots)):
        dist.barrier()
        for one, other in meetings:
            if task.host in (one, other) and local_rank < min(task.slots[one], task.slots[other]):
                partner = other if task.host == one else one
                found[str(partner)] = all_reduce(torch, first[partner] + local_rank, device)
    everything: list[Any] = [None] * sum(task.slots)
    dist.all_gather_object(everything, asdict(Measured(tflops, found)))
    dist.barrier()
    return [Measured(**measured) for measured in everything] if dist.get_rank() == 0 else None


def _end_with_the_asker() -> None:
    """Ends this process when its stdin is closed: the host that asked is gone, or has given up."""
    sys.stdin.read()
    os._exit(1)


def _be_rank(task: Task, local_rank: int) -> int:
    measured = measure(task, local_rank)
    if measured is not None:
        print(json.dumps([asdict(one) for one in measured]), flush=True)
    return 0


def main() -> None:
    """Runs one process for each slot of this host."""
    task = Task(**json.loads(sys.argv[1]))
    children = []
    for local_rank in range(task.slots[task.host]):
        if (child := os.fork()) == 0:
            threading.Thread(target=_end_with_the_asker, daemon=True).start()
            status = 1
            try:
                status = _be_rank(task, local_rank)
            except Exception as error:
                line = (str(error).strip() or type(error).__name__).partition("\n")[0]
                print(f"slot {local_rank}: {line}", file=sys.stderr, flush=True)
            os._exit(status)
        children.append(child)
    statuses = [os.waitpid(child, 0)[1] for child in children]
    sys.exit(any(statuses))


if __name__ == "__main__":
    main()
