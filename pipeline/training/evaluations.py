"""What an evaluation gives, and what its batches pass through."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

T = TypeVar("T")


class Monitor(Protocol):
    """What an evaluation passes its batches through."""

    def __call__(self, batches: Iterable[T], count: int) -> Iterator[T]:
        """The `batches`, `count` of them. All ranks must have the same number."""
        ...


def unmonitored(batches: Iterable[T], count: int) -> Iterator[T]:
    """A `Monitor` that only yields the batches."""
    return iter(batches)


def parts_of(metrics: Mapping[str, Any], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The metrics of each held-out set without its prefix, by name; those of the only set by ""."""
    if not names:
        return {"": dict(metrics)}
    parts = {names[0]: {name: value for name, value in metrics.items() if "/" not in name}}
    for name in names[1:]:
        prefix = f"{name}/"
        parts[name] = {key.removeprefix(prefix): value for key, value in metrics.items() if key.startswith(prefix)}
    return parts


class Evaluation(NamedTuple):
    """The result of an evaluation."""

    metrics: dict[str, Any]  # for metrics.jsonl and TensorBoard
    score: float  # higher is better; the checkpoint with the highest score is kept
    shown: str  # name of the metric that the console shows
    # "mlm", "sop" and "nsp", as far as the run trains them; the console shows their accuracies
    tasks: tuple[str, ...] = ()
    # of the held-out sets, if there are several. The metrics of the first have no prefix, and decide the score; those
    # of another begin with its name and a slash.
    names: tuple[str, ...] = ()

    def parts(self) -> dict[str, dict[str, Any]]:
        """The metrics of each held-out set, by name; "" for the only one."""
        return parts_of(self.metrics, self.names)
