"""Names the devices and hosts that a burn-in found slower than the others."""

import statistics
from collections.abc import Mapping, Sequence

from pipeline.distributed.burn_in.program import Measured

SLOW_DEVICE = 0.9
"""Part of the median speed of all devices below which a device is slow."""
SLOW_LINK = 0.7
"""Part of the median speed of all hosts below which a host's link is slow. Links differ more than devices do."""


def slow(slots: Mapping[str, int], measured: Sequence[Measured]) -> list[str]:
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
    speeds = links(slots, measured)
    if len(speeds) > 2:  # two hosts have one link, and no other to compare it with
        usual = statistics.median(speeds.values())
        lines += [
            f"{host}: all-reduces with the other hosts reach {100 * speed / usual:.0f} % of the median ({speed:.3g} of "
            f"{usual:.3g} GB/s); see its cable, its port and the interface that it uses (NCCL_DEBUG=INFO)"
            for host, speed in speeds.items()
            if speed < SLOW_LINK * usual
        ]
    return lines


def links(slots: Mapping[str, int], measured: Sequence[Measured]) -> dict[str, float]:
    """The median speed of each host's all-reduces with the other hosts, in GB/s; none for a single host."""
    speeds: dict[str, float] = {}
    rank = 0
    for host, count in slots.items():
        found = [speed for one in measured[rank : rank + count] for speed in one.gigabytes_per_second.values()]
        if found:
            speeds[host] = statistics.median(found)
        rank += count
    return speeds


def summary(slots: Mapping[str, int], measured: Sequence[Measured]) -> str:
    """The range of the speeds, in one line."""
    tflops = [one.tflops for one in measured]
    parts = [f"{min(tflops):.3g} to {max(tflops):.3g} TFLOP/s a slot"]
    if speeds := links(slots, measured):
        parts.append(f"all-reduces of two hosts {min(speeds.values()):.3g} to {max(speeds.values()):.3g} GB/s")
    return f"burn-in: {', '.join(parts)}"
