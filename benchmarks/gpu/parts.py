"""The parts of `make gpu`. Each measures one thing in less than ten minutes and returns what goes into its file."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.gpu import checks, demo, memory, several, speed
from benchmarks.gpu.place import Place

Result = dict[str, Any]
LIMIT_SECONDS = 590
"""After so long a part is ended. Runs of training go on at the next start."""


@dataclass(frozen=True)
class Part:
    """One part.

    Attributes:
        name: of the part and its file.
        what: it measures.
        run: measures it.
        gpus: that it needs.
    """

    name: str
    what: str
    run: Callable[[Place], Result]
    gpus: int = 1


def parts() -> list[Part]:
    """All parts, in their order."""
    found = [
        Part(f"tests-{name}", f"the tests of tests/gpu/test_{name}.py", partial(checks.run, name=name))
        for name in checks.FILES
    ]
    for model in speed.MODELS:
        for length in speed.LENGTHS:
            for precision in speed.PRECISIONS:
                what = f"{model} at {length} tokens in {precision}: speed, and the gain of each feature"
                run = partial(speed.measure, model=model, length=length, precision=precision)
                found.append(Part(f"speed-{model}-{length}-{precision}", what, run))
    found += [Part(f"memory-{model}", "memory beside the plan", partial(memory.measure, model=model))
              for model in speed.MODELS]  # fmt: skip
    return [
        *found,
        Part("network", "bandwidth of sums between the GPUs", several.bandwidth, gpus=2),
        Part("scaling", "the same training on more GPUs", several.scaling, gpus=2),
        Part("demo-gpu", "the run of make demo, in fp16", partial(demo.train, on_gpu=True)),
        Part("demo-processor", "the run of make demo, on the processor", partial(demo.train, on_gpu=False)),
    ]
