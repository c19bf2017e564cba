"""Evaluates a model in training on held-out rows, over all ranks, and shows some of its predictions."""

import html
import itertools
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from data_prep.text.vocabulary import WORD_START
from model.layers.heads import IGNORED_LABEL
from pipeline.data import collate
from pipeline.data.collate import Batch, Collator, Objective
from pipeline.data.prefetch import to_device
from pipeline.distributed.control import ControlGroup
from pipeline.pretraining.metrics import PretrainingSums, batch_sums, entropy, sentence_metrics, summarise
from pipeline.tasks.metrics import wilson_interval
from pipeline.training.meter import Meter, sum_over_ranks
from pipeline.training.training_task import Pace, without_pauses

if TYPE_CHECKING:
    from pipeline.engine.state import Engine


HEADER = ("| the text, masked tokens in bold | what the model reads, wrong tokens after ✗ | right |", "|---|---|---|")
MAX_PIECES = 60
"""Pieces of a sequence that are shown; a row of 512 tokens would fill the screen."""
_MARKDOWN = re.compile(r"([\\`*_{}\[\]#|~])")
_MASKED, _WRONG = ("<strong>", "</strong>"), ("<em>✗", "</em>")
# Tags instead of Markdown's marks: marks side by side, as in `**a****b**`, are ambiguous.


class Scores(NamedTuple):
    """The result of an evaluation.

    Attributes:
        metrics: see `evaluate`.
        batch: the first batch of this rank.
        predicted_tokens: (B, M) the most likely token at each of its masked positions.
    """

    metrics: dict[str, Any]
    batch: Batch
    predicted_tokens: NDArray[np.int64]


class _Pass(NamedTuple):
    """The result of one pass over the rows. Sums are over all ranks.

    Attributes:
        totals: sums of losses and counts.
        frequencies: float64 (V,) how often each token is a label.
        batch, predicted_tokens: see `Scores`.
    """

    totals: PretrainingSums[float]
    frequencies: torch.Tensor
    batch: Batch
    predicted_tokens: NDArray[np.int64]


def evaluate(
    engine: "Engine",
    collator: Collator,
    control: ControlGroup,
    micro_batch_size: int,
    limit: int | None = None,
    pace: Pace = without_pauses,
) -> Scores:
    """Evaluates `engine` on rows of `collator`, each once, and leaves it in training mode. Collective.

    A model with a sentence head is scored on both sentence tasks (Table 5 of the paper): on its own one, and on the
    other one in a second pass over the same rows. In both tasks label 0 means that the segments are in document order.

    `mlm_unigram_entropy` is the MLM loss of a model that knows only the frequency of each token. A model with a lower
    loss uses context.

    Args:
        collator: its objective is the model's; `loss` and the MLM metrics are those of the rows that it draws.
        limit: number of rows, see `collate.evaluation`; None for all rows.
        pace: every batch passes through it.
    Returns:
        The metrics `loss`, `mlm_loss`, `mlm_accuracy` with its 95 % interval `mlm_accuracy_low` and
        `mlm_accuracy_high`, `mlm_unigram_entropy` (nats), `mlm_below_unigram` (from 0 to 1, by how much the MLM loss is
        below that entropy) and `predictions`. With a sentence loss also `sop_loss`, `sop_accuracy` with its interval,
        the same for `nsp`, and `pairs`.
    """
    engine.eval()
    own_pass = _pass(engine, collator, control, micro_batch_size, limit, pace)
    task = None if collator.objective == "mlm" else collator.objective
    metrics = summarise(own_pass.totals, task)
    unigram_entropy = entropy(own_pass.frequencies)
    metrics |= {
        "mlm_unigram_entropy": unigram_entropy,
        "mlm_below_unigram": 1.0 - metrics["mlm_loss"] / unigram_entropy if unigram_entropy > 0 else 0.0,
        **dict(zip(("mlm_accuracy_low", "mlm_accuracy_high"), _mlm_interval(own_pass.totals))),
    }
    if task is not None:
        metrics |= _scores(own_pass.totals, task)
        other = _other_task(task)
        other_pass = _pass(engine, replace(collator, objective=other), control, micro_batch_size, limit, pace)
        metrics |= _scores(other_pass.totals, other)
    engine.train()
    return Scores(metrics, own_pass.batch, own_pass.predicted_tokens)


def _other_task(task: Objective) -> Objective:
    """The sentence task that is not `task`."""
    return next(other for other in get_args(Objective) if other not in (task, "mlm"))


def _mlm_interval(totals: PretrainingSums[float]) -> tuple[float, float]:
    """The 95 % interval of the MLM accuracy, as if the masked tokens were independent."""
    return wilson_interval(totals.mlm_correct, totals.mlm_count)


def _scores(totals: PretrainingSums[float], task: str) -> dict[str, Any]:
    """The sentence metrics of one task with the interval of its accuracy."""
    metrics = sentence_metrics(totals, task)
    if metrics:
        low, high = wilson_interval(metrics[f"{task}_accuracy"] * metrics["pairs"], metrics["pairs"])
        metrics |= {f"{task}_accuracy_low": low, f"{task}_accuracy_high": high}
    return metrics


@torch.no_grad()
def _pass(
    engine: "Engine", collator: Collator, control: ControlGroup, micro_batch_size: int, limit: int | None, pace: Pace
) -> _Pass:
    """Evaluates the rows of `collator` with its objective. Collective."""
    meter = Meter(PretrainingSums, engine.device)
    frequencies = torch.zeros(len(collator.continues_word), dtype=torch.float64, device=engine.device)
    first: tuple[Batch, torch.Tensor] | None = None
    count = collate.evaluation_batches(collator, control.world_size, micro_batch_size, limit)
    batches = collate.evaluation(collator, control.rank, control.world_size, micro_batch_size, limit)
    for batch in pace(batches, count):
        tensors = to_device(batch, engine.device)
        output = engine(**tensors)
        meter.add(batch_sums(output, tensors["sequence_ids"]))
        labels = tensors["masked_labels"].flatten()  # (B * M,)
        # An unused label adds 0 at id 0, so that no shape depends on their number.
        frequencies.index_add_(0, labels.clamp(min=0), (labels >= 0).double())
        if first is None:
            first = batch, output.mlm_logits.argmax(dim=-1)  # (B, M)
    assert first is not None, "a shard set has at least one row"
    totals, counts = sum_over_ranks(control, meter.totals(), frequencies.tolist())
    return _Pass(totals, torch.tensor(counts), first[0], first[1].cpu().numpy())


def show_predictions(
    batch: Batch, predicted_tokens: NDArray[np.integer], pieces: list[str], count: int = 3
) -> list[str]:
    """The first `count` sequences that have a prediction, as lines of a Markdown table.

    TensorBoard renders the table. It renders no `~~`.

    Args:
        predicted_tokens: (B, M) the most likely token at each masked position.
        pieces: the vocabulary's, V strings.
    """
    shown: list[str] = []
    for index in range(len(batch.input_ids)):
        used = batch.masked_labels[index] != IGNORED_LABEL  # (M,)
        answers = dict(
            zip(
                batch.masked_positions[index][used].tolist(),
                zip(batch.masked_labels[index][used].tolist(), predicted_tokens[index][used].tolist()),
            )
        )
        tokens = batch.input_ids[index].tolist()
        for sequence in range(int(batch.sequence_ids[index].max()) + 1):
            positions = np.flatnonzero(batch.sequence_ids[index] == sequence).tolist()
            if len(shown) < count and not answers.keys().isdisjoint(positions[:MAX_PIECES]):
                shown.append(_row([(tokens[at], answers.get(at)) for at in positions], pieces))
    return [*HEADER, *shown]


Place = tuple[int, tuple[int, int] | None]
"""A token of the input, and at a masked position (label, predicted token)."""


def _row(places: list[Place], pieces: list[str]) -> str:
    """A sequence as a row of the table: the text, the model's reading, and how many predictions are right."""
    answers = [answer for _, answer in places[:MAX_PIECES] if answer is not None]
    right = sum(label == predicted for label, predicted in answers)
    end = " …" if len(places) > MAX_PIECES else ""
    truth, reading = [], []
    for token, answer in places[:MAX_PIECES]:
        if answer is None:
            truth.append((pieces[token], ("", "")))
            reading.append((pieces[token], ("", "")))
        else:
            label, predicted = answer
            truth.append((pieces[label], _MASKED))
            reading.append((pieces[predicted], _MASKED if predicted == label else _WRONG))
    return f"| {_text(truth)}{end} | {_text(reading)}{end} | {right}/{len(answers)} |"


Tags = tuple[str, str]


def _text(styled: list[tuple[str, Tags]]) -> str:
    """Pieces with their tags as text. Pieces side by side with the same tags become one."""
    words: list[str] = []
    for tags, group in itertools.groupby(styled, key=lambda entry: entry[1]):
        text = "".join(_plain(piece) for piece, _ in group)
        space = " " if text.startswith(" ") else ""
        words.append(f"{space}{tags[0]}{text.strip() or '␣'}{tags[1]}" if any(tags) else text)
    return "".join(words).strip()


def _plain(piece: str) -> str:
    """A piece as text, with the space before it and the characters of Markdown and HTML escaped."""
    special = piece in ("[CLS]", "[SEP]", "[MASK]")
    space = " " if piece.startswith(WORD_START) or special else ""
    return space + _MARKDOWN.sub(r"\\\1", html.escape(piece.removeprefix(WORD_START), quote=False))
