"""`pipeline.pretrain` with three steps under torch.profiler: `python -m benchmarks.gpu.profiled OUT.json FLAGS`.

OUT.json has the seconds of the three steps, the kernels by time, the time in which the device had no work, and how
often and how long the host waited for the device. On a processor the operators of torch stand for kernels. "largest" is
what `note_largest` says of the encoder in the step that follows, whose layers are not compiled.
"""

import json
import sys
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from benchmarks.shared.measure import note_largest, synchronise
from common.files import atomic
from model.layers import encoder
from pipeline import pretrain
from pipeline.distributed.exits import run_and_exit
from pipeline.engine.engine_state import Engine
from pipeline.training.trainer import Trainer

FIRST, STEPS = 3, 3
WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")


def summarise(events: Sequence[Any], seconds: float, top: int = 15) -> dict[str, Any]:
    """The figures of a profile's events that OUT.json holds; `seconds` passed on the host."""
    # An annotation, such as that of an optimizer's step, spans the kernels inside it and the gaps between them.
    on_gpu = [event for event in events if event.device_type == DeviceType.CUDA and not event.is_user_annotation]
    kernels: dict[str, list[float]] = {}
    busy, end = 0.0, 0.0
    for event in sorted(on_gpu or events, key=lambda event: event.time_range.start):
        taken = event.time_range.end - event.time_range.start if on_gpu else event.self_cpu_time_total
        kernels.setdefault(event.name, []).append(taken / 1e6)
        busy += max(0.0, event.time_range.end - max(end, event.time_range.start)) / 1e6
        end = max(end, event.time_range.end)
    waits = [event.time_range.end - event.time_range.start for event in events if event.name in WAITS]
    table = sorted(((sum(times), len(times), name[:80]) for name, times in kernels.items()), reverse=True)[:top]
    return {
        "seconds": seconds,
        "idle_seconds": max(0.0, seconds - busy),
        "host_waits": len(waits),
        "host_wait_seconds": sum(waits) / 1e6,
        "kernels": [{"name": name, "seconds": total, "calls": calls} for total, calls, name in table],
    }


def _profile(out: Path) -> Generator[None, Engine, None]:
    """Profiles the steps after the first `FIRST`. It is sent the engine after each step."""
    for _ in range(FIRST):
        engine = yield
    synchronise(engine.device)
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
    with profile(activities=activities) as profiler:
        began = time.perf_counter()
        for _ in range(STEPS):
            yield
        synchronise(engine.device)
        passed = time.perf_counter() - began
    engine.module.albert.encoder._run_layer = encoder._run_layer
    largest = note_largest(engine.module.albert)
    yield
    found = summarise(profiler.events(), passed) | {"largest": {name: float(one) for name, one in largest.items()}}
    atomic.write_text(out, json.dumps(found, indent=2))
    while True:
        yield


def profile_steps(out: Path) -> None:
    """Makes the trainer of this process profile its steps."""
    profiling, end_step = _profile(out), Trainer._end_step
    next(profiling)

    def end(self: Trainer, seconds: float) -> None:
        end_step(self, seconds)
        profiling.send(self.run.engine)

    Trainer._end_step = end  # type: ignore[method-assign]


def main(words: Sequence[str]) -> int:
    """Runs the command line and returns the exit status."""
    profile_steps(Path(words[0]))
    return pretrain.main(words[1:])


if __name__ == "__main__":
    run_and_exit(lambda: main(sys.argv[1:]))
