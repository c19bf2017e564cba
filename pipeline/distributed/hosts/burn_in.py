"""The burn-in of preflight: runs `burn_in_program` on all hosts over ssh, and names the slow devices and links."""

import json
import statistics
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from pipeline.distributed.hosts import burn_in_program
from pipeline.distributed.hosts.burn_in_program import Measured, Task
from pipeline.distributed.hosts.query import RemotePython, line_of_json

SLOW_DEVICE = 0.9
"""Part of the median speed of all devices below which a device is slow."""
SLOW_LINK = 0.7
"""Part of the median speed of all hosts below which a host's link is slow. Links differ more than devices do."""
_START_SECONDS = 300.0  # imports from a cold network disk, and the pairs' connections
_PAIR_SECONDS = 10.0


def run_burn_in(
    slots: Mapping[str, int], environment: Mapping[str, str], address: str, port: int, seconds: float
) -> tuple[list[Measured], list[str]]:
    """Runs the burn-in on all hosts at once.

    Args:
        slots: number of processes by host; the first host has rank 0.
        environment: the variables that DeepSpeed will export there.
        address, port: of rank 0.
        seconds: of matrix products.
    Returns:
        What each rank measured, and a line for each host that failed. One of the two is empty.
    """
    accelerator = "cpu" if environment.get("DS_ACCELERATOR") == "cpu" else "cuda"
    text = Path(burn_in_program.__file__).read_text(encoding="utf-8")
    tasks = [Task(number, list(slots.values()), address, port, seconds, accelerator) for number in range(len(slots))]
    remotes = [RemotePython(host, environment, text, json.dumps(asdict(task))) for host, task in zip(slots, tasks)]
    limit = _START_SECONDS + seconds + _PAIR_SECONDS * len(slots)
    with ThreadPoolExecutor(len(remotes)) as pool:
        ended = list(pool.map(lambda remote: remote.finish(limit), remotes))
    problems = [
        f"{host}: the burn-in failed ({problem}); see that host" for host, (_, problem) in zip(slots, ended) if problem
    ]
    if problems:
        return [], problems
    printed, _ = ended[0]
    return [Measured(**one) for one in json.loads(line_of_json(printed.splitlines(), "[{"))], []


def name_slow(slots: Mapping[str, int], measured: Sequence[Measured]) -> list[str]:
    """One line for each slow device and each host with a slow link.

    Args:
        slots: number of processes by host, in the order of the ranks.
        measured: by rank.
    """
    names = [(host, slot) for host, count in slots.items() for slot in range(count)]
    usual = statistics.median(one.tflops for one in measured)
    lines = [
        f"{host}: slot {slot} computes at {100 * one.tflops / usual:.0f} % of the median ({one.tflops:.3g} of "
        f"{usual:.3g} TFLOP/s); see its temperature, its power limit and what else runs there (nvidia-smi -q)"
        for (host, slot), one in zip(names, measured)
        if one.tflops < SLOW_DEVICE * usual
    ]
    speeds = _links(slots, measured)
    if len(speeds) > 2:  # two hosts have one link, and no other to compare it with
        usual = statistics.median(speeds.values())
        lines += [
            f"{host}: all-reduces with the other hosts reach {100 * speed / usual:.0f} % of the median ({speed:.3g} of "
            f"{usual:.3g} GB/s); see its cable, its port and the interface that it uses (NCCL_DEBUG=INFO)"
            for host, speed in speeds.items()
            if speed < SLOW_LINK * usual
        ]
    return lines


def _links(slots: Mapping[str, int], measured: Sequence[Measured]) -> dict[str, float]:
    """The median speed of each host's all-reduces with the other hosts, in GB/s; none for a single host."""
    speeds: dict[str, float] = {}
    rank = 0
    for host, count in slots.items():
        found = [speed for one in measured[rank : rank + count] for speed in one.gigabytes_per_second.values()]
        if found:
            speeds[host] = statistics.median(found)
        rank += count
    return speeds


def summarise(slots: Mapping[str, int], measured: Sequence[Measured]) -> str:
    """The range of the speeds, in one line."""
    tflops = [one.tflops for one in measured]
    parts = [f"{min(tflops):.3g} to {max(tflops):.3g} TFLOP/s a slot"]
    if speeds := _links(slots, measured):
        parts.append(f"all-reduces of two hosts {min(speeds.values()):.3g} to {max(speeds.values()):.3g} GB/s")
    return f"burn-in: {', '.join(parts)}"
