"""Pre-training as a `Workload`: rows of shards, masked tokens and the sentence loss."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from model.albert import PreTrainingOutput
from pipeline import batches, guesses
from pipeline.batches import Batch, Reader
from pipeline.control import Control
from pipeline.corpora import Corpora, training_step
from pipeline.evaluation import evaluate
from pipeline.settings import Settings
from pipeline.statistics import SUMS, pretraining_sums, summarise
from pipeline.workload import Evaluation

SANITY_BATCHES = 2


@dataclass
class PreTraining:
    """The rows of `training`, evaluated on those of `held_out`, as `settings` say. A `Workload`.

    Attributes:
        held_out: readers by name; the first one's figures have no name before them, and decide what the best step is.
        pieces: the vocabulary's, V strings, to show sentences in.
    """

    settings: Settings
    training: Corpora
    held_out: Mapping[str, Reader]
    control: Control
    pieces: list[str]

    name = "pretrain"
    sums_count = SUMS

    @property
    def evaluates(self) -> bool:
        """Whether there are held-out rows."""
        return bool(self.held_out)

    def steps(self, first: int) -> Iterator[list[Batch]]:
        """See `Workload.steps`."""
        for step in range(first, self.settings.steps):
            yield training_step(
                self.training,
                step,
                self.control.rank,
                self.control.world_size,
                self.settings.engine.micro_batch_size,
                self.settings.engine.train_batch_size,
            )

    def counts(self, micro_batches: Sequence[Batch]) -> list[float]:
        """Predicted tokens, and pairs with a label."""
        return [
            sum(int((batch.masked_labels != batches.IGNORED).sum()) for batch in micro_batches),
            sum(int((batch.sentence_labels != batches.IGNORED).sum()) for batch in micro_batches),
        ]

    def loss(self, output: PreTrainingOutput, counts: Sequence[float], shares: int) -> Tensor:
        """MLM loss + sentence loss, each a mean. See `Workload.loss`."""
        predictions, pairs = counts
        assert output.mlm_loss_sum is not None
        assert output.sentence_loss_sum is not None
        mlm_loss = output.mlm_loss_sum * (shares / max(predictions, 1.0))
        return mlm_loss + output.sentence_loss_sum * (shares / max(pairs, 1.0))

    def sums(self, output: PreTrainingOutput, tensors: dict[str, Tensor]) -> list[Tensor]:
        """See `pipeline.statistics.pretraining_sums`."""
        return pretraining_sums(output, tensors["sequence_ids"])

    def summarise(self, totals: Sequence[float]) -> dict[str, Any]:
        """See `pipeline.statistics.summarise`."""
        return summarise(totals, None if self.settings.objective == "mlm" else self.settings.objective)

    def try_evaluation(self, engine: Any) -> tuple[Evaluation, float]:
        """Two batches of each rank, of each directory."""
        stride = self.settings.engine.micro_batch_size * self.control.world_size
        batches_a_rank = [-(-len(reader.shards) // stride) for reader in self.held_out.values()]
        tried = sum(min(SANITY_BATCHES, count) for count in batches_a_rank)
        return self._evaluate(engine, SANITY_BATCHES), tried / sum(batches_a_rank)

    def progress(self, samples: int) -> dict[str, Any]:
        """How far each corpus of a mixture has come."""
        return self.training.progress(samples)

    def evaluate(self, engine: Any, last: bool) -> Evaluation:
        """On `eval_batches` batches of each rank, or all; scored by the accuracy on masked tokens."""
        return self._evaluate(engine, None if last else self.settings.eval_batches)

    def _evaluate(self, engine: Any, limit: int | None) -> Evaluation:
        figures: dict[str, Any] = {}
        for number, (name, reader) in enumerate(self.held_out.items()):
            found = evaluate(engine, reader, self.control, self.settings.engine.micro_batch_size, limit)
            shown = {"guesses": guesses.show(found.batch, found.guesses, self.pieces)}
            named = found.figures | shown
            figures |= {f"{name}/{key}": value for key, value in named.items()} if number else named
        return Evaluation(figures, figures["mlm_accuracy"], "mlm_loss")
