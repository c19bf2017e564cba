"""What is trained: one class for pre-training, one for fine-tuning. `pipeline.run.start` and `Trainer` do the rest."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from data_prep.text.vocabulary import Vocabulary
from pipeline.checkpoint.initial_weights import InitialModel, InitialWeights
from pipeline.data.sampler import step_positions
from pipeline.distributed.control import ControlGroup
from pipeline.settings.run_settings import RunSettings
from pipeline.training.training_run import Evaluation, Monitor, Throughput, TrainingRun

if TYPE_CHECKING:
    from pipeline.engine.engine_state import Engine


@dataclass
class TrainingTask(ABC):
    """One run: its settings, its model, its data, its loss and its evaluation.

    It is made when the command line is checked, and knows no data until `open`, which also sets `control`. A batch is a
    NamedTuple of numpy arrays, whose fields are the arguments of the model. `initial` is the model of --init.
    """

    settings: RunSettings
    vocabulary: Vocabulary
    initial: InitialModel | None
    control: ControlGroup = field(init=False)

    noun: ClassVar[str]  # what a batch consists of: "rows" or "samples"
    # NamedTuple class of `sums`. Its fields are the task's; `tokens` and `rows` are among them.
    sums_kind: ClassVar[type[Any]]
    # whether the runs of other seeds need `weights`, too. Otherwise their memory is freed.
    shares_weights: ClassVar[bool] = False

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do."""
        return (self.settings.flags.output / "done").exists()

    @property
    def reopens(self) -> bool:
        """Whether a run that was done goes on, because it has become longer."""
        return False

    @property
    def weights(self) -> InitialWeights | None:
        """What the model is filled with at its first start; None: it stays as `make_model` made it."""
        return None if self.initial is None else self.initial.weights

    def facts(self) -> Mapping[str, str]:
        """What all ranks must agree on beside what a resume must not change."""
        return {}

    @abstractmethod
    def open(self, control: ControlGroup) -> None:
        """Opens the data. Collective. Raises UserError: it is damaged."""

    @property
    @abstractmethod
    def name(self) -> str:
        """For the progress bar."""

    @property
    @abstractmethod
    def rows(self) -> int:
        """Number of rows or samples in the training data."""

    @property
    @abstractmethod
    def evaluates(self) -> bool:
        """Whether there is data to evaluate on."""

    @abstractmethod
    def make_model(self) -> nn.Module:
        """The model before `weights` are filled in; torch's random numbers are seeded before."""

    @abstractmethod
    def has_head(self, name: str) -> bool:
        """Whether a tensor of a head, by name, means the same in `weights` and in the model."""

    @abstractmethod
    def subject(self, new_tensors: Sequence[str] | None) -> list[str]:
        """The first lines of the run's header. new_tensors: those that `weights` did not fill; None after a resume."""

    @abstractmethod
    def details(self) -> list[str]:
        """The last lines of the run's header."""

    def throughput(self) -> Throughput | None:
        """Computes speeds for the log; None leaves out TFLOP/s."""
        return None

    def conclude(self, run: TrainingRun) -> str:
        """Does what comes after the last step. Returns which model is exported. Collective."""
        return "the model"

    def summarise_seeds(self, members: Sequence[Path]) -> None:
        """Writes the results of several seeds, whose runs are in `members`. On rank 0 of a command that makes them."""
        raise NotImplementedError

    def last_line(self) -> str:
        """What the run prints at its end, such as what to do with the model; "" for nothing."""
        return ""

    @abstractmethod
    def read(self, positions: NDArray[np.int64], size: int) -> Any:
        """The batch of the positions (N,) in the order of training; rows of shards are filled up to `size` rows."""

    def steps(self, batches: Iterable[int]) -> Iterator[list[Any]]:
        """This rank's micro-batches of each step. Step by step, `batches` has the number of the global batch, from 0.

        The data is divided into global batches of `train_batch_size` samples, in the order of training.
        """
        engine, control = self.settings.engine, self.control
        size, ranks = engine.micro_batch_size, (control.rank, control.world_size)
        shift = self.settings.samples_after(0)
        for batch in batches:
            parts = step_positions(batch, *ranks, size, engine.train_batch_size)
            yield [self.read(part + shift, size) for part in parts]

    @abstractmethod
    def label_counts(self, micro_batches: Sequence[Any]) -> Any:
        """The number of labels of each kind in this rank's micro-batches of a step, a NamedTuple of floats.

        Summed over all ranks, they are the denominators of `loss`.
        """

    @abstractmethod
    def loss(self, output: Any, label_counts: Any, micro_batches_per_step: int) -> Tensor:
        """What the `output` of one micro-batch adds to the mean loss over the labels of the global batch, a scalar ().

        It does not depend on how the global batch is divided. DeepSpeed averages the gradients over all micro-batches
        of a step; the factor `micro_batches_per_step` (ranks x micro-steps) turns that average into a sum.
        """

    @abstractmethod
    def sums(self, output: Any, tensors: dict[str, Tensor]) -> Any:
        """The sums of one batch, a NamedTuple of class `sums_kind` of scalars () on the device."""

    @abstractmethod
    def summarise(self, totals: Any) -> dict[str, Any]:
        """The metrics of summed-up `sums`; "loss" is one of them."""

    @abstractmethod
    def data_progress(self, samples: int) -> dict[str, Any]:
        """Metrics of how much of the data a run has consumed when `samples` samples are behind it; {} without any."""

    @abstractmethod
    def try_evaluation(self, engine: "Engine") -> tuple[Evaluation | None, float]:
        """Evaluates on a few batches before the first step, so that a broken evaluation shows at once. Collective.

        Returns the evaluation, or None if so few batches mean nothing; and its fraction of a whole evaluation.
        """

    @abstractmethod
    def evaluate(self, engine: "Engine", wrap: Monitor) -> Evaluation:
        """Evaluates, on the same data every time; every batch passes through `wrap`. Collective.

        It leaves the engine in training mode.
        """
