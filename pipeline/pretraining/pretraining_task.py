"""Pre-training as a `TrainingTask`: rows of shards, masked tokens and the sentence loss."""

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from torch import Tensor, nn

from common.environment import whole_number
from model import AlbertForPreTraining
from model.config import IGNORED_LABEL, NEIGHBOURS
from model.pretraining import PreTrainingOutput
from pipeline.data.collate import Batch, Collator
from pipeline.data.masking import MaskingSettings
from pipeline.data.mixture import Mixture, names_of, open_mixture, training_step
from pipeline.distributed.control import ControlGroup
from pipeline.engine.hardware import missing_for_compilation
from pipeline.pretraining import evaluation
from pipeline.pretraining.corpora import check_on_hosts, describe_missing_labels
from pipeline.pretraining.evaluation import PretrainingSums
from pipeline.pretraining.plateau import Plateau, context_free_losses
from pipeline.settings.run_settings import PretrainSettings
from pipeline.training.evaluations import Evaluation, Monitor, unmonitored
from pipeline.training.training_run import Callback, Throughput, TrainingRun
from pipeline.training.training_task import TrainingTask

if TYPE_CHECKING:
    from pipeline.engine.engine_state import Engine

SANITY_BATCHES = 2
"""Micro-batches of each rank in the evaluation before the first step."""


class LabelCounts(NamedTuple):
    """The number of labels: predicted tokens, and segment pairs with a label."""

    predictions: float
    pairs: float


@dataclass
class PreTraining(TrainingTask):
    """Trains on the rows of `training` and evaluates on the rows of `held_out`.

    Attributes:
        earlier: the settings of the start before this one; None for a new run.
        training: the training shards; set by `open`.
        held_out: collators by name; set by `open`. The metrics of the first one have no prefix and decide which step is
            the best.
    """

    settings: PretrainSettings
    earlier: PretrainSettings | None
    training: Mixture = field(init=False)
    held_out: Mapping[str, Collator] = field(init=False)

    name = "pretrain"
    noun = "rows"
    sums_kind: ClassVar[type[Any]] = PretrainingSums
    held_out_has_paper_masks: ClassVar[bool] = True
    """So that runs with other masks can be compared."""

    @property
    def is_done(self) -> bool:
        """See `TrainingTask`."""
        return super().is_done and not self.reopens

    @property
    def reopens(self) -> bool:
        """Whether this start changes the length of a run that has begun."""
        return self.earlier is not None and self.earlier.steps != self.settings.steps

    def facts(self) -> Mapping[str, str]:
        """See `TrainingTask`."""
        compiles = self.settings.flags.compile != "off" and self.settings.engine.device != "CPU"
        missing = missing_for_compilation() if compiles else ""
        return {
            "what torch.compile finds (or give --compile off)": missing or "all that it needs",
            "the length": str(self.settings.steps),
            "what is skipped": str(self.settings.skipped_batches),
        }

    def open(self, control: ControlGroup) -> None:
        """Opens the shards, and checks them on each host. See `TrainingTask`."""
        settings, flags = self.settings, self.settings.flags
        self.control = control
        sampled_by = self.vocabulary.continues_word, settings.objective, flags.seed
        masking = MaskingSettings() if self.held_out_has_paper_masks else settings.masking
        self.held_out = {
            name: open_mixture([directory], [1], *sampled_by, masking).collators[0]
            for name, directory in zip(names_of(flags.eval_data), flags.eval_data)
        }
        self.training = open_mixture(settings.data, settings.corpus_weights, *sampled_by, settings.masking)
        if flags.verify == "always":
            check_on_hosts((*settings.data, *flags.eval_data), control, is_first=whole_number("LOCAL_RANK") == 0)

    @property
    def rows(self) -> int:
        """See `TrainingTask`."""
        return self.training.rows

    @property
    def evaluates(self) -> bool:
        """Whether there are held-out rows."""
        return bool(self.held_out)

    def make_model(self) -> nn.Module:
        """See `TrainingTask`."""
        return AlbertForPreTraining(self.settings.model, self.settings.execution)

    def has_head(self, name: str) -> bool:
        """See `TrainingTask`."""
        assert self.initial is not None
        same_sentence_task = self.initial.config.sentence_head == self.settings.model.sentence_head
        return same_sentence_task or not name.startswith("sentence_head.")

    def subject(self, new_tensors: Sequence[str] | None) -> list[str]:
        """See `TrainingTask`."""
        settings, model, earlier = self.settings, self.settings.model, self.earlier
        lines = [
            f"model: {model.num_hidden_layers} layers, hidden size {model.hidden_size}, vocabulary {model.vocab_size:,}"
        ]
        if self.initial is not None and new_tensors is not None:
            new = f"; new: {', '.join(new_tensors)}" if new_tensors else ""
            lines.append(f"weights from {self.initial.directory}{new}")
        if earlier is not None and earlier.steps != settings.steps:
            lines.append(f"length changed: {earlier.steps:,} -> {settings.steps:,} steps")
        if earlier is not None and earlier.scored_on not in ("", settings.scored_on):
            lines.append("other held-out text than before: the best checkpoint is chosen anew")
        return lines + [f"batches {first + 1:,} to {end:,} are left out" for first, end in settings.skipped_batches]

    def details(self) -> list[str]:
        """See `TrainingTask`."""
        lines = self.training.describe(self.settings.steps * self.settings.engine.train_batch_size)
        counts = [collator.shards.manifest.counts for collator in self.training.collators]
        if fault := describe_missing_labels(counts, self.settings.objective):
            lines.append(f"note: {fault}")
        if not self.evaluates:
            lines.append("note: no --eval-data, so nothing is evaluated and no checkpoint counts as the best")
        return lines

    def callbacks(self, run: TrainingRun) -> Sequence[Callback]:
        """See `TrainingTask`."""
        if not run.is_rank_0:
            return ()
        losses = functools.partial(context_free_losses, self.training, self.settings.masking)
        remedy = "another learning rate"
        if self.settings.model.initial_attention != NEIGHBOURS:
            remedy += ", or --model-args initial_attention=neighbours embedding_initializer_range=0.1"
        return [Plateau(run, losses, self.settings.warmup_steps, remedy)]

    def throughput(self) -> Throughput:
        """See `TrainingTask`."""
        engine, shape = self.settings.engine, self.training.collators[0].shape
        return Throughput.of(self.settings.model, shape, engine.world_size, engine.device, engine.precision)

    def steps(self, batches: Iterable[int]) -> Iterator[list[Batch]]:
        """See `TrainingTask.steps`."""
        for batch in batches:
            yield training_step(
                self.training.read,
                batch,
                self.control.rank,
                self.control.world_size,
                self.settings.engine.micro_batch_size,
                self.settings.engine.train_batch_size,
            )

    def label_counts(self, micro_batches: Sequence[Batch]) -> LabelCounts:
        """See `TrainingTask.label_counts`."""
        return LabelCounts(
            predictions=sum(int((batch.masked_labels != IGNORED_LABEL).sum()) for batch in micro_batches),
            pairs=sum(int((batch.sentence_labels != IGNORED_LABEL).sum()) for batch in micro_batches),
        )

    def loss(self, output: PreTrainingOutput, label_counts: LabelCounts, micro_batches_per_step: int) -> Tensor:
        """MLM loss + sentence loss, each a mean over the global batch. See `TrainingTask.loss`."""
        assert output.mlm_loss_sum is not None
        assert output.sentence_loss_sum is not None
        mlm_loss = output.mlm_loss_sum * (micro_batches_per_step / max(label_counts.predictions, 1.0))  # ()
        return mlm_loss + output.sentence_loss_sum * (micro_batches_per_step / max(label_counts.pairs, 1.0))

    def sums(self, output: PreTrainingOutput, tensors: dict[str, Tensor]) -> PretrainingSums[Any]:
        """See `pipeline.pretraining.evaluation.batch_sums`."""
        return evaluation.batch_sums(output, tensors["sequence_ids"])

    def summarise(self, totals: PretrainingSums[float]) -> dict[str, Any]:
        """See `pipeline.pretraining.evaluation.summarise`."""
        return evaluation.summarise(totals, None if self.settings.objective == "mlm" else self.settings.objective)

    def data_progress(self, samples: int) -> dict[str, Any]:
        """The epochs of all rows together, and the samples and epochs of each corpus of a mixture."""
        return {"epochs": samples / self.training.rows, **self.training.progress(samples)}

    def try_evaluation(self, engine: "Engine") -> tuple[Evaluation, float]:
        """Evaluates on two batches of each rank from each held-out directory. See `TrainingTask.try_evaluation`."""
        limit = SANITY_BATCHES * self.settings.engine.micro_batch_size * self.control.world_size
        whole = self._rows(self._limit)
        tried = self._evaluate(engine, min(limit, self._limit or limit), unmonitored)
        return tried, min(1.0, self._rows(limit) / whole)

    def evaluate(self, engine: "Engine", wrap: Monitor) -> Evaluation:
        """Evaluates on the same rows every time: all, or those of `eval_batches`. The score is the MLM accuracy."""
        return self._evaluate(engine, self._limit, wrap)

    @property
    def _limit(self) -> int | None:
        """The rows of each held-out directory in an evaluation. Every start of a run has the same."""
        batches = self.settings.flags.eval_batches
        return None if batches is None else batches * self.settings.engine.train_batch_size

    def _rows(self, limit: int | None) -> int:
        """The rows of all held-out directories together, at most `limit` of each."""
        counts = [len(collator.shards) for collator in self.held_out.values()]
        return sum(counts if limit is None else [min(limit, count) for count in counts])

    def _evaluate(self, engine: "Engine", limit: int | None, wrap: Monitor) -> Evaluation:
        """Evaluates on up to `limit` rows of each held-out directory."""
        metrics: dict[str, Any] = {}
        for number, (name, collator) in enumerate(self.held_out.items()):
            named = self._evaluate_rows(engine, collator, limit, wrap)
            metrics |= {f"{name}/{key}": value for key, value in named.items()} if number else named
        return self._score(metrics)

    def _evaluate_rows(self, engine: "Engine", collator: Collator, limit: int | None, wrap: Monitor) -> dict[str, Any]:
        rows = self.settings.engine.micro_batch_size
        return evaluation.evaluate(engine, collator, self.control, rows, limit, wrap)

    def _score(self, metrics: dict[str, Any]) -> Evaluation:
        objective = self.settings.objective
        tasks = ("mlm",) if objective == "mlm" else ("mlm", objective)
        names = tuple(self.held_out) if len(self.held_out) > 1 else ()
        return Evaluation(metrics, metrics["mlm_accuracy"], "mlm_loss", tasks, names)
