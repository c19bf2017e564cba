"""Minimal pairs of sentences, as in BLiMP: does a model find the acceptable sentence of a pair more likely?

The score of a sentence is its pseudo-log-likelihood (Salazar et al., 2020): the sum over its tokens of
log p(token | sentence with the token masked), in nats. So T tokens are read T times, in copies with different masks.

    plain         the token alone is masked. A word of several pieces scores too high: each piece tells the others
    within-word   the later pieces of its word are masked, too (Kauf and Ivanova, 2023). A word ends before a blank

Legend of the shapes: N sentences, T tokens of each without [CLS] and [SEP], B copies of a batch, V vocab_size.
"""

import contextlib
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from common.errors import UserError
from common.files.json_files import Count, Positive, Probability
from common.intervals import Interval
from common.progress_bar import Progress
from common.text import markdown_table
from data_prep.sources.opening import COMPRESSED, visible_files
from data_prep.text.vocabulary import CLS_ID, MASK_ID, SEP_ID, Vocabulary
from model import AlbertForPreTraining
from pipeline.data.prefetch import prefetch
from pipeline.tasks.files.tables import parse_json_lines, read_text
from pipeline.tasks.kinds.row_packing import EncodedTexts

ScoreKind = Literal["within-word", "plain"]

TOKENS_IN_BATCH = 8192
"""Of copies that are computed together. All are equally long, so there is no padding, and no attention to leave out."""
MAX_TOKENS_IN_CHUNK = 1 << 23  # of copies that are made together

GOOD, BAD = ("good", "sentence_good"), ("bad", "sentence_bad")
PARADIGM, PHENOMENON = ("paradigm", "UID"), ("phenomenon", "linguistics_term")
"""Names of a field: the short one, and BLiMP's own."""
ROUNDING = 1e-4
"""Scores that differ by no more than this, in nats, are equal. Rounding alone can make such a difference."""
_FILE = re.compile(rf"\.jsonl{COMPRESSED}", re.IGNORECASE)
_NORMAL_95 = 1.96  # standard deviations


class Pair(NamedTuple):
    """Two sentences, and what they differ in. A phenomenon has one or more paradigms."""

    good: str
    bad: str
    phenomenon: str
    paradigm: str


@dataclass(frozen=True)
class Outcome:
    """How many pairs are right in a paradigm, a phenomenon, or all of them. A tie is wrong.

    Attributes:
        phenomenon, paradigm: their names; None for several.
        paradigms, pairs: their numbers.
        accuracy: the share of pairs whose good sentence has the higher score; the mean over several paradigms.
        baseline, baseline_ties: the same, if the score is the sum of the log frequencies of the sentence's tokens. None
            if the vocabulary has no frequencies.
    """

    phenomenon: str | None
    paradigm: str | None
    paradigms: Positive
    pairs: Positive
    accuracy: Probability
    ties: Count
    baseline: Probability | None = None
    baseline_ties: Count | None = None


@dataclass(frozen=True)
class Result:
    """What `pipeline.evaluate minimal-pairs --out` writes: outcomes over all paradigms, and of each.

    `interval`: 95 % interval of the accuracy of `total`, see `interval_of`.
    """

    model: str
    score: ScoreKind
    total: Outcome
    interval: Interval
    phenomena: tuple[Outcome, ...]
    paradigms: tuple[Outcome, ...]

    def table(self) -> str:
        """A Markdown table of the phenomena and the mean over all paradigms, in percent; then the numbers of ties."""
        rows = []
        for each in (*self.phenomena, self.total):
            shares = [f"{100 * share:.1f}" for share in (each.accuracy, each.baseline) if share is not None]
            rows.append([each.phenomenon or "mean over paradigms", f"{each.paradigms:,}", f"{each.pairs:,}", *shares])
        rows[-1][3] += " ({:.1f} to {:.1f})".format(*(100 * bound for bound in self.interval))
        titles = ["phenomenon", "paradigms", "pairs", "accuracy", "word frequencies"][: len(rows[0])]
        ties = f"ties, counted as wrong: {self.total.ties:,}"
        if self.total.baseline_ties is not None:
            ties += f"; by word frequencies {self.total.baseline_ties:,}"
        return f"{markdown_table(titles, rows, 'lrrrr'[: len(titles)])}\n\n{ties}"


def read_pairs(path: Path, limit: int | None = None) -> list[Pair]:
    """Reads pairs from a file of JSON Lines, which may be compressed, or a directory of them.

    Pairs that name no paradigm have that of their phenomenon, or else the name of the file. Pairs that name no
    phenomenon have that of their paradigm. `limit`: only so many, the first ones, of each paradigm. Raises UserError:
    there is no pair, a pair has no sentence, or a file cannot be read.
    """
    files = [path]
    if path.is_dir():
        files = [file for file, name in visible_files(path, _FILE.search) if "/" not in name]
        if not files:
            raise UserError(f"{path} holds no .jsonl file; name the directory of BLiMP's files, or one file")
        names: dict[str, str] = {}
        for file in files:
            if (first := names.setdefault(_FILE.sub("", file.name), file.name)) != file.name:
                raise UserError(f"{file} holds the pairs of {first} again; remove one")
    pairs: list[Pair] = []
    counts: Counter[tuple[str, str]] = Counter()
    for file in files:
        table = parse_json_lines(read_text(file), file)
        for index, row in enumerate(table.rows):
            place = table.place(index)
            good, bad = _field(row, GOOD, place), _field(row, BAD, place)
            paradigm = _field(row, PARADIGM, place, _field(row, PHENOMENON, place, file.name.partition(".")[0]))
            pair = Pair(good, bad, _field(row, PHENOMENON, place, paradigm), paradigm)
            counts[pair.phenomenon, paradigm] += 1
            if limit is None or counts[pair.phenomenon, paradigm] <= limit:
                pairs.append(pair)
    if not pairs:
        raise UserError(f"{path} holds no pair; name another file")
    return pairs


def _field(row: Mapping[str, Any], names: Sequence[str], place: str, default: str | None = None) -> str:
    """The text in the field with one of `names`. Without a `default` it must be there."""
    name = next((name for name in names if row.get(name) is not None), None)
    value = default if name is None else row[name]
    if value is None:
        raise UserError(f"{place}: no field {' or '.join(map(repr, names))}; add it, or check --pairs")
    if not isinstance(value, str) or not value.strip():
        raise UserError(f"{place}: field {name!r} is {value!r:.40}, not a text; correct it, or remove the pair")
    return value


def evaluate(
    model: AlbertForPreTraining, vocabulary: Vocabulary, pairs: Sequence[Pair], source: str, kind: ScoreKind
) -> Result:
    """Scores the sentences of at least one pair. `source` names the model in the result. See `score_sentences`."""
    sentences = [sentence for pair in pairs for sentence in pair[:2]]
    scores = score_sentences(model, vocabulary, sentences, kind).reshape(-1, 2)  # (N, 2)
    baseline = frequency_scores(vocabulary, sentences)
    return summarise(pairs, source, kind, scores, None if baseline is None else baseline.reshape(-1, 2))


def frequency_scores(vocabulary: Vocabulary, sentences: Sequence[str]) -> NDArray[np.float64] | None:
    """The sum of the log frequencies of each sentence's tokens, (N,); None if the vocabulary has no frequencies."""
    frequencies, encoded = vocabulary.log_frequencies, EncodedTexts(vocabulary, sentences)
    if frequencies is None:
        return None
    # Exact sums: the same tokens in another order are a tie.
    return np.array([math.fsum(frequencies[encoded[index]]) for index in range(len(sentences))])


def summarise(
    pairs: Sequence[Pair],
    source: str,
    kind: ScoreKind,
    scores: NDArray[np.float64],
    baseline: NDArray[np.float64] | None = None,
) -> Result:
    """The result for the scores (N, 2) of the good and the bad sentence of each pair, and for those of the baseline."""
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for number, pair in enumerate(pairs):
        groups[pair.phenomenon, pair.paradigm].append(number)
    paradigms = [
        Outcome(*name, 1, len(of), *_count(scores[of]), *((None, None) if baseline is None else _count(baseline[of])))
        for name, of in sorted(groups.items())
    ]
    phenomena: dict[str | None, list[Outcome]] = defaultdict(list)
    for outcome in paradigms:
        phenomena[outcome.phenomenon].append(outcome)
    return Result(
        source,
        kind,
        _mean(None, paradigms),
        interval_of([each.accuracy for each in paradigms], [each.pairs for each in paradigms]),
        tuple(_mean(name, of) for name, of in phenomena.items()),
        tuple(paradigms),
    )


def _count(scores: NDArray[np.float64]) -> tuple[float, int]:
    """The accuracy and the ties of pairs with scores (N, 2)."""
    gains = scores[:, 0] - scores[:, 1]  # (N,)
    return float(np.mean(gains > ROUNDING)), int(np.sum(np.abs(gains) <= ROUNDING))


def _mean(phenomenon: str | None, of: Sequence[Outcome]) -> Outcome:
    """The outcome of several paradigms."""
    accuracy = math.fsum(each.accuracy for each in of) / len(of)
    pairs, ties = sum(each.pairs for each in of), sum(each.ties for each in of)
    if of[0].baseline is None:
        return Outcome(phenomenon, None, len(of), pairs, accuracy, ties)
    baseline = math.fsum(each.baseline or 0.0 for each in of) / len(of)
    baseline_ties = sum(each.baseline_ties or 0 for each in of)
    return Outcome(phenomenon, None, len(of), pairs, accuracy, ties, baseline, baseline_ties)


def interval_of(accuracies: Sequence[float], pairs: Sequence[int]) -> Interval:
    """The 95 % interval of the mean accuracy of paradigms: what other pairs of the same paradigms would give.

    The paradigms are fixed and their pairs are a sample, so the variance of the mean is the sum of the variances of the
    paradigms, divided by the square of their number. The variance of each is that of its pairs with one right and one
    wrong pair more (Laplace). Otherwise a paradigm without a mistake would have none, however few its pairs are.
    """
    accuracy, count = np.array(accuracies), np.array(pairs)  # (P,) each
    shares = (accuracy * count + 1) / (count + 2)  # (P,)
    margin = _NORMAL_95 * math.sqrt(np.sum(shares * (1 - shares) / count)) / len(count)
    return max(0.0, float(accuracy.mean()) - margin), min(1.0, float(accuracy.mean()) + margin)


class _Chunk(NamedTuple):
    """Sentences of T tokens each, and their copies."""

    sentences: NDArray[np.int64]  # (N,) their numbers
    tokens: NDArray[np.int64]  # (N, T)
    copies: NDArray[np.int32]  # (N, T, T + 2) copy t is for token t


@torch.no_grad()
def score_sentences(
    model: AlbertForPreTraining, vocabulary: Vocabulary, sentences: Sequence[str], kind: ScoreKind
) -> NDArray[np.float64]:
    """The pseudo-log-likelihood of each sentence, float64 (N,), by a model in evaluation mode.

    Equal sentences are computed once. On a GPU fp32 matrices are multiplied in TF32. Raises UserError: a sentence has
    no tokens, or more than the model has positions.
    """
    distinct = list(dict.fromkeys(sentences))
    encoded = _encode(vocabulary, distinct, model.config.max_position_embeddings)
    device, scores = next(model.parameters()).device, np.empty(len(distinct))
    with _fast_products(device), Progress("scoring", int(encoded.lengths.sum()), "tokens") as progress:
        for chunk in prefetch(_chunks(encoded, vocabulary, kind)):
            copies = torch.from_numpy(chunk.copies).to(device).flatten(0, 1)  # (N * T, T + 2)
            count, length = chunk.tokens.shape
            labels = torch.from_numpy(chunk.tokens).to(device).flatten()  # (N * T,)
            positions = torch.arange(1, length + 1, device=device).repeat(count)  # (N * T,)
            parts, size = [], max(1, TOKENS_IN_BATCH // (length + 2))
            for ids, at, label in zip(*(column.split(size) for column in (copies, positions, labels))):
                logits = model(ids.long(), masked_positions=at[:, None]).mlm_logits  # (B, 1, V)
                parts.append(logits[:, 0].float().log_softmax(-1).gather(1, label[:, None]))  # (B, 1)
                progress.update(len(ids))
            # The only time that the host waits for the device.
            scores[chunk.sentences] = torch.cat(parts).view(count, length).double().sum(1).cpu().numpy()
    number = {sentence: index for index, sentence in enumerate(distinct)}
    return scores[[number[sentence] for sentence in sentences]]


def _encode(vocabulary: Vocabulary, sentences: Sequence[str], positions: int) -> EncodedTexts:
    """The tokens of sentences. UserError: one has none, or more than `positions` with [CLS] and [SEP]."""
    encoded = EncodedTexts(vocabulary, sentences)
    for index in np.flatnonzero((encoded.lengths == 0) | (encoded.lengths > positions - 2)).tolist():
        count = int(encoded.lengths[index])
        too_long = f"has {count + 2:,} tokens, and the model {positions} positions; shorten it"
        fault = too_long if count else "has no token; correct it"
        raise UserError(f"the sentence {sentences[index][:60]!r} {fault}, or remove its pair")
    return encoded


def _chunks(encoded: EncodedTexts, vocabulary: Vocabulary, kind: ScoreKind) -> Iterator[_Chunk]:
    """Yields all sentences, the longest first: too little memory shows at once."""
    starts_word = np.array([spelling.startswith(" ") for spelling in vocabulary.spellings])  # (V,)
    for length in np.unique(encoded.lengths)[::-1].tolist():
        group = np.flatnonzero(encoded.lengths == length)
        step = max(1, MAX_TOKENS_IN_CHUNK // (length * (length + 2)))
        for chosen in np.split(group, range(step, len(group), step)):
            tokens = np.stack([encoded[index] for index in chosen.tolist()]).astype(np.int64)  # (N, T)
            masked = np.eye(length, dtype=np.bool_)  # (T, T) whether copy t masks a token
            if kind == "within-word":
                words = np.cumsum(starts_word[tokens], axis=1)  # (N, T) number of each token's word
                masked = np.triu(words[:, :, None] == words[:, None, :])  # (N, T, T)
            copies = np.empty((len(tokens), length, length + 2), dtype=np.int32)
            copies[:, :, 0], copies[:, :, -1] = CLS_ID, SEP_ID
            copies[:, :, 1:-1] = np.where(masked, MASK_ID, tokens[:, None])
            yield _Chunk(chosen, tokens, copies)


@contextlib.contextmanager
def _fast_products(device: torch.device) -> Iterator[None]:
    """Multiplies fp32 matrices in TF32 on a GPU, which takes a fraction of the time."""
    before = torch.get_float32_matmul_precision()
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
