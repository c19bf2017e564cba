"""Minimal pairs of sentences, as in BLiMP: does a model find the acceptable sentence of a pair more likely?"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from common.errors import UserError
from common.files.json_files import Count, Positive, Probability, read_as
from common.text import markdown_table
from data_prep.sources.opening import COMPRESSED, visible_files
from data_prep.text.vocabulary import Vocabulary
from model import AlbertForPreTraining
from pipeline.analysis.sentence_scores import ScoreKind, score_sentences
from pipeline.tasks.files.tables import parse_json_lines, read_text
from pipeline.tasks.kinds.row_packing import EncodedTexts
from pipeline.tasks.metrics import Interval

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
        ties: pairs whose sentences have equal scores.
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
    """What `pipeline.evaluate minimal-pairs --out` writes.

    Attributes:
        model: where it was read.
        score: how sentences were scored.
        total: over all paradigms.
        interval: 95 % interval of the accuracy of `total`, see `interval_of`.
        phenomena, paradigms: each of them, by name.
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
        for one in (*self.phenomena, self.total):
            accuracies = [f"{100 * share:.1f}" for share in (one.accuracy, one.baseline) if share is not None]
            rows.append([one.phenomenon or "mean over paradigms", f"{one.paradigms:,}", f"{one.pairs:,}", *accuracies])
        rows[-1][3] += " ({:.1f} to {:.1f})".format(*(100 * bound for bound in self.interval))
        titles = ["phenomenon", "paradigms", "pairs", "accuracy", "word frequencies"][: len(rows[0])]
        ties = f"ties, counted as wrong: {self.total.ties:,}"
        if self.total.baseline_ties is not None:
            ties += f"; by word frequencies {self.total.baseline_ties:,}"
        return f"{markdown_table(titles, rows, 'lrrrr'[: len(titles)])}\n\n{ties}"


def read_result(path: Path) -> Result:
    """Reads a file of --out. Raises UserError if it is damaged, or another file."""
    return read_as(path, Result, "make it again with `python -m pipeline.evaluate minimal-pairs`")


def read_pairs(path: Path, limit: int | None = None) -> list[Pair]:
    """Reads pairs from JSON Lines, which may be compressed.

    Args:
        path: a file, or a directory of .jsonl files. Pairs that name no paradigm have that of their phenomenon, or else
            the name of the file. Pairs that name no phenomenon have that of their paradigm.
        limit: the number of pairs that are taken of each paradigm, the first ones. None: all.
    Raises:
        UserError: there is no pair, a pair has no sentence, or a file cannot be read.
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
    for one in paradigms:
        phenomena[one.phenomenon].append(one)
    return Result(
        source,
        kind,
        _mean(None, paradigms),
        interval_of([one.accuracy for one in paradigms], [one.pairs for one in paradigms]),
        tuple(_mean(name, of) for name, of in phenomena.items()),
        tuple(paradigms),
    )


def _count(scores: NDArray[np.float64]) -> tuple[float, int]:
    """The accuracy and the ties of pairs with scores (N, 2)."""
    gains = scores[:, 0] - scores[:, 1]  # (N,)
    return float(np.mean(gains > ROUNDING)), int(np.sum(np.abs(gains) <= ROUNDING))


def _mean(phenomenon: str | None, of: Sequence[Outcome]) -> Outcome:
    """The outcome of several paradigms."""
    baseline = None
    if of[0].baseline is not None:
        baseline = math.fsum(one.baseline or 0.0 for one in of) / len(of)
    return Outcome(
        phenomenon,
        None,
        len(of),
        sum(one.pairs for one in of),
        math.fsum(one.accuracy for one in of) / len(of),
        sum(one.ties for one in of),
        baseline,
        None if baseline is None else sum(one.baseline_ties or 0 for one in of),
    )


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
