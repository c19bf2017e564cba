"""Pre-training as a `TrainingTask`: rows of shards, masked tokens and the sentence loss; the evaluation.

Every mean is over predicted tokens or pairs, never over means.
"""

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from common.environment import whole_number
from common.intervals import wilson_interval
from model import AlbertForPreTraining
from model.config import FREQUENCIES, IGNORED_LABEL
from model.initialisation import start_at_frequencies
from model.pretraining import PreTrainingOutput
from pipeline.data import collate
from pipeline.data.collate import Batch, Collator
from pipeline.data.masking import MaskingSettings
from pipeline.data.mixture import Mixture, names_of, open_mixture
from pipeline.data.prefetch import prefetch, to_device
from pipeline.distributed.control import ControlGroup
from pipeline.engine.hardware import missing_for_compilation
from pipeline.pretraining.corpora import check_on_hosts, describe_missing_labels
from pipeline.settings.run_settings import PretrainSettings
from pipeline.training.step_metrics import Meter, sum_over_ranks
from pipeline.training.training_run import Evaluation, Monitor, Throughput, unmonitored
from pipeline.training.training_task import TrainingTask

if TYPE_CHECKING:
    from pipeline.engine.engine_state import Engine

T = TypeVar("T", Tensor, float)

SAMPLED_ROWS = 8192  # from the beginning of the run, whose masked tokens are counted for the initial output bias
SANITY_BATCHES = 2  # micro-batches of each rank in the evaluation before the first step


class LabelCounts(NamedTuple):
    """The number of labels: predicted tokens, and segment pairs with a label."""

    predictions: float
    pairs: float


class PretrainingSums(NamedTuple, Generic[T]):
    """Sums over batches."""

    # mlm_loss, mlm_correct, mlm_count: over the masked tokens
    mlm_loss: T
    mlm_correct: T
    mlm_count: T
    # sentence_loss, sentence_correct, sentence_count: over the segment pairs
    sentence_loss: T
    sentence_correct: T
    sentence_count: T
    tokens: T  # without padding
    rows: T  # that hold at least one token


@dataclass
class PreTraining(TrainingTask):
    """Trains on the rows of `training` and evaluates on the rows of `held_out`."""

    settings: PretrainSettings
    earlier: PretrainSettings | None  # the settings of the start before this one; None for a new run
    training: Mixture = field(init=False)  # the training shards; set by `open`
    # collators by name; set by `open`. The metrics of the first one have no prefix and decide which step is the best.
    held_out: Mapping[str, Collator] = field(init=False)

    name = "pretrain"
    noun = "rows"
    sums_kind: ClassVar[type[Any]] = PretrainingSums
    held_out_has_paper_masks: ClassVar[bool] = True  # so that runs with other masks can be compared

    @property
    def is_done(self) -> bool:
        return super().is_done and not self.reopens

    @property
    def reopens(self) -> bool:
        """Whether this start changes the length of a run that has begun."""
        return self.earlier is not None and self.earlier.steps != self.settings.steps

    def facts(self) -> Mapping[str, str]:
        compiles = self.settings.flags.compile != "off" and self.settings.engine.device != "CPU"
        missing = missing_for_compilation() if compiles else ""
        return {
            "what torch.compile finds (or give --compile off)": missing or "all that it needs",
            "the length": str(self.settings.steps),
            "what is skipped": str(self.settings.skipped_batches),
        }

    def open(self, control: ControlGroup) -> None:
        """Opens the shards, and checks them on each host."""
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
        return self.training.rows

    @property
    def evaluates(self) -> bool:
        """Whether there are held-out rows."""
        return bool(self.held_out)

    def make_model(self) -> nn.Module:
        model = AlbertForPreTraining(self.settings.model, self.settings.execution)
        if self.settings.model.initial_output_bias == FREQUENCIES:
            labels = self.training.read(np.arange(SAMPLED_ROWS)).masked_labels  # (B, M)
            counts = np.bincount(labels[labels != IGNORED_LABEL], minlength=self.settings.model.vocab_size)
            start_at_frequencies(model.mlm_head.bias, torch.from_numpy(counts))
        return model

    def has_head(self, name: str) -> bool:
        assert self.initial is not None
        same_sentence_task = self.initial.config.sentence_head == self.settings.model.sentence_head
        return same_sentence_task or not name.startswith("sentence_head.")

    def subject(self, new_tensors: Sequence[str] | None) -> list[str]:
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
        lines = self.training.describe(self.settings.samples_after(self.settings.steps))
        counts = [collator.shards.manifest.counts for collator in self.training.collators]
        if fault := describe_missing_labels(counts, self.settings.objective):
            lines.append(f"note: {fault}")
        for name, collator in self.held_out.items():
            if describe_missing_labels([collator.shards.manifest.counts], task := self.settings.objective):
                lines.append(f"note: no {task.upper()} of --eval-data {name}: one document, or no second segments")
        begin, end = self.settings.first_step, self.settings.steps
        if outside := [str(step) for step in self.settings.milestones if not begin < step <= end]:
            lines.append(f"note: --keep-at: the run does not reach step {', '.join(outside)}, so nothing is kept there")
        if not self.evaluates:
            lines.append("note: no --eval-data, so nothing is evaluated and no checkpoint counts as the best")
        return lines

    def throughput(self) -> Throughput:
        engine, shape = self.settings.engine, self.training.collators[0].shape
        return Throughput.of(self.settings.model, shape, engine.world_size, engine.device, engine.precision)

    def read(self, positions: NDArray[np.int64], size: int) -> Batch:
        return self.training.read(positions, size)

    def label_counts(self, micro_batches: Sequence[Batch]) -> LabelCounts:
        return LabelCounts(
            predictions=sum(int((batch.masked_labels != IGNORED_LABEL).sum()) for batch in micro_batches),
            pairs=sum(int((batch.sentence_labels != IGNORED_LABEL).sum()) for batch in micro_batches),
        )

    def loss(self, output: PreTrainingOutput, label_counts: LabelCounts, micro_batches_per_step: int) -> Tensor:
        """MLM loss + sentence loss, each a mean over the global batch."""
        assert output.mlm_loss_sum is not None
        assert output.sentence_loss_sum is not None
        mlm_loss = output.mlm_loss_sum * (micro_batches_per_step / max(label_counts.predictions, 1.0))  # ()
        return mlm_loss + output.sentence_loss_sum * (micro_batches_per_step / max(label_counts.pairs, 1.0))

    def sums(self, output: PreTrainingOutput, tensors: dict[str, Tensor]) -> PretrainingSums[Any]:
        sequence_ids = tensors["sequence_ids"]  # (B, S), -1 on padding
        return PretrainingSums(
            mlm_loss=output.mlm_loss_sum,
            mlm_correct=output.mlm_correct,
            mlm_count=output.mlm_count,
            sentence_loss=output.sentence_loss_sum,
            sentence_correct=output.sentence_correct,
            sentence_count=output.sentence_count,
            tokens=(sequence_ids >= 0).sum(),
            rows=(sequence_ids[:, 0] >= 0).sum(),
        )

    def summarise(self, totals: PretrainingSums[float]) -> dict[str, Any]:
        """Losses and accuracies from sums over all batches and ranks; NaN if nothing was predicted.

        `loss`, `mlm_loss`, `mlm_accuracy`, `predictions`, `interval_tokens`, `sentence_metrics` with a sentence loss.
        """
        predictions, task = totals.mlm_count, self.settings.objective
        mlm_loss = totals.mlm_loss / predictions if predictions else math.nan
        of_sentences = {} if task == "mlm" else sentence_metrics(totals, task)
        return {
            "mlm_loss": mlm_loss,
            "mlm_accuracy": totals.mlm_correct / predictions if predictions else math.nan,
            "loss": mlm_loss + of_sentences.get(f"{task}_loss", 0.0),
            **of_sentences,
            "predictions": int(predictions),
            "interval_tokens": int(totals.tokens),
        }

    def data_progress(self, samples: int) -> dict[str, Any]:
        """The epochs of all rows together, and the samples and epochs of each corpus of a mixture."""
        return {"epochs": samples / self.training.rows, **self.training.progress(samples)}

    def try_evaluation(self, engine: "Engine") -> tuple[Evaluation, float]:
        """Evaluates on two batches of each rank from each held-out directory."""
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
        """Evaluates on up to `limit` rows of `collator`, each once. Collective.

        A model with a sentence head is scored on both sentence tasks (Table 5 of the paper): on its own one, and on the
        other one in a second pass over the same rows. In both tasks label 0 means that the segments are in document
        order. Accuracies have 95 % intervals, as if the masked tokens were independent.

        `mlm_unigram_entropy` is the MLM loss, in nats, of a model that knows only the frequency of each token, and
        `mlm_below_unigram` how far below it is, from 0 to 1. Up to 0.1 needs no context: a tenth of them is shown.
        """
        totals, frequencies = self._pass(engine, collator, limit, wrap)
        metrics, unigram = self.summarise(totals), entropy(frequencies)
        metrics |= {
            "mlm_unigram_entropy": unigram,
            "mlm_below_unigram": 1.0 - metrics["mlm_loss"] / unigram if unigram > 0 else 0.0,
            **_interval("mlm", totals.mlm_correct, totals.mlm_count),
        }
        task, counts = self.settings.objective, [collator.shards.manifest.counts]
        for name in ("sop", "nsp") if task != "mlm" else ():
            if describe_missing_labels(counts, name):  # such as NSP of one document, where each label is 0
                metrics = {key: value for key, value in metrics.items() if not key.startswith(f"{name}_")}
                continue
            sums = totals if name == task else self._pass(engine, replace(collator, objective=name), limit, wrap)[0]
            if sums.sentence_count:
                metrics |= sentence_metrics(sums, name)
                metrics |= _interval(name, sums.sentence_correct, sums.sentence_count)
        return metrics

    def _pass(
        self, engine: "Engine", collator: Collator, limit: int | None, wrap: Monitor
    ) -> tuple[PretrainingSums[float], Tensor]:
        """Sums over the rows of `collator` on all ranks, with its objective; how often each token is a label, (V,)."""
        meter = Meter(PretrainingSums, engine.device)
        frequencies = torch.zeros(len(collator.continues_word), dtype=torch.float64, device=engine.device)
        for tensors, output in self._outputs(engine, collator, limit, wrap):
            meter.add(PreTraining.sums(self, output, tensors))
            labels = tensors["masked_labels"].flatten()  # (B * M,)
            # An unused label adds 0 at id 0, so that no shape depends on their number.
            frequencies.index_add_(0, labels.clamp(min=0), (labels >= 0).double())
        totals, counts = sum_over_ranks(self.control, meter.totals(), frequencies.tolist())
        return totals, torch.tensor(counts)

    @torch.no_grad()
    def _outputs(
        self, engine: "Engine", collator: Collator, limit: int | None, wrap: Monitor
    ) -> Iterator[tuple[dict[str, Tensor], Any]]:
        """Yields this rank's held-out batches on the device, with the output for each.

        The engine is in evaluation mode meanwhile, and in training mode afterwards. Collective.
        """
        engine.eval()
        world_size, rows = self.control.world_size, self.settings.engine.micro_batch_size
        count, batches = collate.evaluation(collator, self.control.rank, world_size, rows, limit)
        with contextlib.closing(prefetch(batches)) as made:
            for batch in wrap(made, count):
                tensors = to_device(batch, engine.device)
                yield tensors, engine(**tensors)
        engine.train()

    def _score(self, metrics: dict[str, Any]) -> Evaluation:
        objective = self.settings.objective
        tasks = ("mlm",) if objective == "mlm" else ("mlm", objective)
        names = tuple(self.held_out) if len(self.held_out) > 1 else ()
        return Evaluation(metrics, metrics["mlm_accuracy"], "mlm_loss", tasks, names)


def sentence_metrics(totals: PretrainingSums[float], task: str) -> dict[str, Any]:
    """Loss and accuracy of the sentence head, named after `task`, and the number of pairs; {} without pairs."""
    pairs = totals.sentence_count
    if not pairs:
        return {}
    return {
        f"{task}_loss": totals.sentence_loss / pairs,
        f"{task}_accuracy": totals.sentence_correct / pairs,
        "pairs": int(pairs),
    }


def entropy(counts: Tensor) -> float:
    """Entropy, in nats, of the distribution with the frequencies `counts` (V,)."""
    probabilities = counts.double() / counts.sum().clamp(min=1)
    return float(torch.special.entr(probabilities).sum())


def _interval(name: str, correct: float, count: float) -> dict[str, float]:
    """The 95 % interval of an accuracy."""
    return dict(zip((f"{name}_accuracy_low", f"{name}_accuracy_high"), wilson_interval(correct, count)))
