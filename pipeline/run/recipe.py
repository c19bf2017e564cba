"""What differs between the commands that train: `start` does the rest."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import nn

from data_prep.text.vocabulary import Vocabulary
from pipeline.checkpoint.initial_weights import InitialWeights
from pipeline.distributed.control import ControlGroup
from pipeline.run.initial_model import InitialModel
from pipeline.settings.run_flags import RunFlags
from pipeline.training.run_settings import RunSettings
from pipeline.training.step_metrics import Throughput
from pipeline.training.training_run import Callback, TrainingRun
from pipeline.training.training_task import TrainingTask


class Header(NamedTuple):
    """What the header of a run says beside the batch and the precision.

    Attributes:
        subject: the first lines: model, task and data.
        rows: number of rows or samples in the training data.
        noun: "rows" or "samples".
        details: the last lines.
    """

    subject: Sequence[str]
    rows: int
    noun: str
    details: Sequence[str]


@dataclass
class Recipe(ABC):
    """One run: its settings, its data, its model and its loss.

    Attributes:
        flags: as they were given, which of several seeds are those of all.
        settings: of this run.
        vocabulary: of the model, for the run's directory.
        initial: the trained model of --init; None for random weights.
    """

    flags: RunFlags
    settings: RunSettings
    vocabulary: Vocabulary
    initial: InitialModel | None

    shares_weights: ClassVar[bool] = False
    """Whether the recipes of other seeds need `weights`, too. Otherwise their memory is freed."""

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
        """What all ranks must agree on beside the record of the settings."""
        return {}

    @abstractmethod
    def open(self, control: ControlGroup) -> TrainingTask:
        """Opens the data. Collective. Raises UserError: it is damaged."""

    @abstractmethod
    def make_model(self, task: TrainingTask) -> nn.Module:
        """The model before `weights` are filled in; torch's random numbers are seeded before."""

    @abstractmethod
    def has_head(self, name: str) -> bool:
        """Whether a tensor of a head, by name, means the same in `weights` and in the model."""

    @abstractmethod
    def header(self, task: TrainingTask, new_tensors: Sequence[str] | None) -> Header:
        """What is trained. new_tensors: those that `weights` did not fill; None after a resume."""

    def throughput(self, task: TrainingTask, world_size: int) -> Throughput | None:
        """Computes speeds for the log; None leaves out TFLOP/s."""
        return None

    def callbacks(self, run: TrainingRun, task: TrainingTask) -> Sequence[Callback]:
        """What looks on beside the callbacks of every run."""
        return ()

    def conclude(self, run: TrainingRun, task: TrainingTask) -> str:
        """Does what comes after the last step. Returns which model is exported. Collective."""
        return "the model"

    def last_line(self) -> str:
        """What the run prints at its end, such as what to do with the model; "" for nothing."""
        return ""
