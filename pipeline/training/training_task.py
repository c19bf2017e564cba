"""What a `Trainer` trains on. Pre-training and fine-tuning are each a `TrainingTask`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from torch import Tensor

if TYPE_CHECKING:
    from pipeline.engine.engine_state import Engine

T = TypeVar("T")


class Pace(Protocol):
    """What an evaluation passes its batches through."""

    def __call__(self, batches: Iterable[T], count: int) -> Iterator[T]:
        """The `batches`, `count` of them. All ranks must have the same number."""
        ...


def without_pauses(batches: Iterable[T], count: int) -> Iterator[T]:
    """A `Pace` that only yields the batches."""
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
    """The result of an evaluation.

    Attributes:
        metrics: for metrics.jsonl and TensorBoard.
        score: higher is better; the checkpoint with the highest score is kept.
        shown: name of the metric that the console shows.
        tasks: "mlm", "sop" and "nsp", as far as the run trains them; the console shows their accuracies.
        names: of the held-out sets, if there are several. The metrics of the first have no prefix, and decide the
            score; those of another begin with its name and a slash.
    """

    metrics: dict[str, Any]
    score: float
    shown: str
    tasks: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    def parts(self) -> dict[str, dict[str, Any]]:
        """The metrics of each held-out set, by name; "" for the only one."""
        return parts_of(self.metrics, self.names)


class TrainingTask(Protocol):
    """The batches of a run, their loss and their metrics.

    A batch is a NamedTuple of numpy arrays, whose fields are the arguments of the model.

    Attributes:
        name: shown on the progress bar.
        sums_kind: NamedTuple class of `sums`. Its fields are the task's; `tokens` and `rows` are among them.
        evaluates: whether there is data to evaluate on.
    """

    @property
    def name(self) -> str: ...
    @property
    def sums_kind(self) -> type[Any]: ...
    @property
    def evaluates(self) -> bool: ...

    def steps(self, batches: Iterable[int]) -> Iterator[list[Any]]:
        """This rank's micro-batches of each step. Step by step, `batches` has the number of the global batch, from 0.

        The data is divided into global batches of `train_batch_size` samples, in the order of training.
        """
        ...

    def label_counts(self, micro_batches: Sequence[Any]) -> Any:
        """The number of labels of each kind in this rank's micro-batches of a step, a NamedTuple of floats.

        Summed over all ranks, they are the denominators of `loss`.
        """
        ...

    def loss(self, output: Any, label_counts: Any, micro_batches_per_step: int) -> Tensor:
        """What the `output` of one micro-batch adds to the mean loss over the labels of the global batch, a scalar ().

        It does not depend on how the global batch is divided. DeepSpeed averages the gradients over all micro-batches
        of a step; the factor `micro_batches_per_step` (ranks x micro-steps) turns that average into a sum.
        """
        ...

    def sums(self, output: Any, tensors: dict[str, Tensor]) -> Any:
        """The sums of one batch, a NamedTuple of class `sums_kind` of scalars () on the device."""
        ...

    def summarise(self, totals: Any) -> dict[str, Any]:
        """The metrics of summed-up `sums`; "loss" is one of them."""
        ...

    def data_progress(self, samples: int) -> dict[str, Any]:
        """Metrics of how much of the data a run has consumed when `samples` samples are behind it; {} without any."""
        ...

    def try_evaluation(self, engine: "Engine") -> tuple[Evaluation | None, float]:
        """Evaluates on a few batches before the first step, so that a broken evaluation shows at once. Collective.

        Returns:
            The evaluation, or None if so few batches mean nothing; and its size as a fraction of a whole evaluation.
        """
        ...

    def evaluate(self, engine: "Engine", pace: Pace) -> Evaluation:
        """Evaluates, on the same data every time. Leaves the engine in training mode. Collective.

        Args:
            pace: every batch passes through it.
        """
        ...
