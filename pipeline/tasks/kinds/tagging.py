"""Texts with a tag for each token, and the metrics of tags.

The first piece of a token decides its tag. But all pieces are trained: the further ones with the tag of the token, as a
continuation (I) of what it begins (B), for programs that join the tags of pieces. A text that is longer than the
model's sequence is divided into windows, so that each token gets a tag. Entities are counted as `seqeval` and
CoNLL-2000's script count them: an entity is right if its type and both of its ends are. A tag is "O", or a prefix and a
type, such as "B-PER". The prefix is B (first token), I (inside), E (last) or S (single). An I or E that continues no
entity of its type begins one. `in_bies` reads the other ways to write such tags.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from data_prep.text.vocabulary import Vocabulary
from pipeline.tasks import metrics
from pipeline.tasks.files.rows import Columns, ExampleRow, find_classes
from pipeline.tasks.files.tables import Table
from pipeline.tasks.kinds.logits import Logits, LogitsKind
from pipeline.tasks.kinds.row_packing import IGNORED_LABEL, EncodedTexts, cls_grid, pack, to_host
from pipeline.tasks.task import Statistic, Task

if TYPE_CHECKING:
    from model.classification import ClassificationOutput

ENTITY_METRICS = ("entity_f1", "entity_precision", "entity_recall")
OUTSIDE = "O"  # the tag of a token that has no piece, if the task has such a tag; otherwise its first tag
SCHEMES = ("BIES", "BILU", "BMES", "BMEW")
"""The letters of each scheme of tags, in the order of BIES. IOB, IOE and plain B are parts of the first."""
_PREFIXED = re.compile(r"([A-Z])(?:[-_:/](.+))?", re.DOTALL | re.IGNORECASE)
_SUFFIXED = re.compile(r"(.+)[-_:/]([A-Z])", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True)
class TagExample:
    """A text in tokens, and the number of each token's tag; None if the tags are not known."""

    id: str
    tokens: tuple[str, ...]
    labels: tuple[int, ...] | None = None


class TagBatch(NamedTuple):
    """The arguments of `AlbertForTokenClassification.forward`."""

    input_ids: NDArray[np.int64]  # (B, S)
    token_type_ids: NDArray[np.int64]  # (B, S)
    position_ids: NDArray[np.int64]  # (B, S)
    sequence_ids: NDArray[np.int64]  # (B, S)
    cls_positions: NDArray[np.int64]  # (B, P)
    token_positions: NDArray[np.int64]  # (T,) row * S + position: of each piece in training, else of a token's first
    labels: NDArray[np.int64]  # (T,) -100 where unknown

    @property
    def label_count(self) -> int:
        """The number of known labels."""
        return int((self.labels != IGNORED_LABEL).sum())


class TagFeatures:
    """The features of texts in tokens; a sample is one window of a text. Implements `Features`."""

    cut = 0  # the windows have all tokens

    def __init__(self, task: Task, vocabulary: Vocabulary, examples: Sequence[TagExample], max_length: int) -> None:
        """Makes windows of whole tokens with at most `max_length` pieces; a longer token is cut."""
        self.examples = len(examples)
        self._ids = np.array([example.id for example in examples])
        self._token_counts = np.array([len(example.tokens) for example in examples], dtype=np.int64)
        tags = in_bies(task.labels) or list(task.labels)
        outside = tags.index(OUTSIDE) if OUTSIDE in tags else 0
        self._without_piece = np.eye(len(task.labels), dtype=np.float32)[outside]  # (C,) logits
        self._pieces = EncodedTexts(vocabulary, [token for example in examples for token in example.tokens])
        self._capacity = max_length - 2
        self._lengths = np.minimum(self._pieces.lengths, self._capacity)  # (tokens,)
        labels = [example.labels or [IGNORED_LABEL] * len(example.tokens) for example in examples]
        self._labels = np.concatenate([np.array(of_text, dtype=np.int64) for of_text in labels])  # (tokens,)
        inside = [f"I-{tag[2:]}" if tag.startswith("B-") else tag for tag in tags]
        of_pieces = [tags.index(tag) if tag in tags else number for number, tag in enumerate(inside)]
        self._continued = np.array(of_pieces)  # (C,) the tag of the further pieces of a token
        self._windows = self._make_windows()
        lengths = [2 + self._lengths[start:end].sum() for start, end in self._windows]
        self.lengths = np.array(lengths, dtype=np.int64)  # (samples,)

    def _make_windows(self) -> list[tuple[int, int]]:
        """Tokens [start, end) of all texts' tokens for each window. They belong to one text."""
        windows = []
        end = 0
        for count in self._token_counts.tolist():
            start, end, filled = end, end + count, 0
            for token, length in enumerate(self._lengths[start:end].tolist(), start=start):
                if filled + length > self._capacity:
                    windows.append((start, token))
                    start, filled = token, 0
                filled += length
            windows.append((start, end))
        return windows

    def _seen(self, sample: int) -> NDArray[np.int64]:
        """The tokens of a window that have a piece. Of the others normalisation leaves nothing."""
        start, end = self._windows[sample]
        return start + np.flatnonzero(self._lengths[start:end])

    def batch(self, samples: Sequence[int], training: bool) -> TagBatch:
        windows = [range(*self._windows[sample]) for sample in samples]
        texts = [np.concatenate([self._pieces[token][: self._capacity] for token in window]) for window in windows]
        rows, placement = pack([(text, None) for text in texts])
        begins = placement.row * rows.input_ids.shape[1] + placement.start + 1  # (N,) behind [CLS]
        nothing = np.zeros(0, dtype=np.int64)  # of a batch without samples
        tokens = np.concatenate([nothing, *(self._seen(sample) for sample in samples)])  # (tokens,)
        pieces = [np.arange(length - 2) for length in self.lengths[np.asarray(samples, dtype=np.int64)].tolist()]
        positions = np.concatenate([nothing, *(begin + of for begin, of in zip(begins, pieces, strict=True))])  # (T,)
        lengths, labels = self._lengths[tokens], self._labels[tokens]  # (tokens,) each
        first = np.cumsum(lengths) - lengths  # (tokens,) behind all pieces of the tokens before it
        if training:
            of_pieces = np.repeat(self._continued[labels], lengths)  # (T,)
            of_pieces[first] = labels
            labels = of_pieces
        else:
            positions = positions[first]
        return TagBatch(*rows, cls_grid(placement, len(rows.input_ids)), positions, labels)

    def decode(
        self, samples: Sequence[int], batch: TagBatch, output: "ClassificationOutput"
    ) -> list[NDArray[np.float32]]:
        """The logits (tokens, C) of each window. A token without a piece gets the tag `OUTSIDE`."""
        seen = [self._seen(sample) for sample in samples]
        ends = np.cumsum([len(tokens) for tokens in seen])[:-1]
        per_window = []
        for sample, tokens, logits in zip(samples, seen, np.split(to_host(output.logits), ends)):  # (seen, C)
            start, end = self._windows[sample]
            per_window.append(np.tile(self._without_piece, (end - start, 1)))  # (tokens, C)
            per_window[-1][tokens - start] = logits
        return per_window

    def predictions(self, outputs: Mapping[int, NDArray[np.float32]]) -> Logits:
        logits = np.concatenate([outputs[sample] for sample in range(len(self._windows))])
        labels = None if (self._labels == IGNORED_LABEL).any() else self._labels
        return Logits(self._ids, logits, labels, lengths=self._token_counts)


def in_bies(labels: Sequence[str]) -> list[str] | None:
    """The tags as "O" or B-TYPE, I-TYPE, E-TYPE and S-TYPE; None if they do not mark entities.

    Known are the `SCHEMES`, with the letter before or behind the type or without a type, in small letters too, and with
    -, _, : or / between letter and type. Tags that are none of these are classes, such as parts of speech.
    """
    marked = [label for label in labels if label.upper() != OUTSIDE]
    for pattern, letter, type_ in ((_PREFIXED, 1, 2), (_SUFFIXED, 2, 1)):
        matches = [match for label in marked if (match := pattern.fullmatch(label))]
        letters = {match[letter].upper() for match in matches}
        types = {match[type_] or "" for match in matches}
        if not matches or len(matches) < len(marked) or ("" in types and (len(types) > 1 or not letters & set("BI"))):
            continue
        for scheme in SCHEMES:
            if letters <= set(scheme):
                in_scheme = str.maketrans(scheme, "BIES")
                names = {of[0]: f"{of[letter].upper().translate(in_scheme)}-{of[type_] or ''}" for of in matches}
                return [names.get(label, OUTSIDE) for label in labels]
    return None


def entities(tags: Sequence[str]) -> set[tuple[str, int, int]]:
    """The entities in the tags of one text: type, first token, and the token behind the last one."""
    complete = set()
    kind, start, previous = "", -1, "O"
    for index, tag in enumerate([*tags, "O"]):
        prefix, _, type_ = tag.partition("-")
        continues = start >= 0 and prefix in ("I", "E") and type_ == kind and previous in ("B", "I")
        if start >= 0 and not continues:
            complete.add((kind, start, index))
            start = -1
        if prefix != "O" and not continues:
            kind, start = type_, index
        previous = prefix
    return complete


def entity_counts(task: Task, predictions: Logits) -> NDArray[np.int64]:
    """(N, 3): of each text the number of entities that are right, predicted and true."""
    assert predictions.labels is not None
    assert predictions.lengths is not None
    names, ends = np.array(in_bies(task.labels), dtype=object), np.cumsum(predictions.lengths)[:-1]  # (C,), (N - 1,)
    texts = zip(*(np.split(names[tags], ends) for tags in (predictions.predictions(), predictions.labels)))
    pairs = [(entities(ours.tolist()), entities(true.tolist())) for ours, true in texts]
    return np.array([(len(ours & true), len(ours), len(true)) for ours, true in pairs], dtype=np.int64)


class Tagging(LogitsKind):
    """A class for each token."""

    name = "tagging"
    own_tasks: ClassVar = {"tagging": Columns("tokens", label="tags")}
    has_second_text = False
    model_class = "model.classification.AlbertForTokenClassification"
    features = TagFeatures
    record_names = ("prediction", "probability")
    architecture = "AlbertForTokenClassification"
    pipeline_tag = "token-classification"

    def find_labels(self, table: Table, columns: Columns) -> tuple[str, ...]:
        """The tags, see `find_classes`."""
        return find_classes(table, columns, lambda row: row.check_list(columns.label, row.label or ()))

    def choose_metrics(self, labels: Sequence[str]) -> tuple[str, ...]:
        return (*ENTITY_METRICS, "accuracy") if in_bies(labels) else ("accuracy", "f1_macro")

    def note(self, labels: Sequence[str]) -> str:
        if in_bies(labels):
            return ""
        return "each tag is scored by itself; entities need tags such as B-PER, I-PER and O, all of one scheme"

    def read_row(self, row: ExampleRow, labels: Sequence[str]) -> TagExample:
        tokens = row.texts(row.columns.text, "a token")
        if not tokens:
            raise row.mistake(f"column {row.columns.text!r} is empty; fill it, or remove the row")
        if row.label is None:
            row.name_of(None)
            return TagExample(row.id, tokens)
        tags = row.check_list(row.columns.label, row.label)
        if len(tags) != len(tokens):
            raise row.mistake(f"{len(tokens)} tokens, but {len(tags)} tags; correct the row, or remove it")
        known = [tag for tag in (row.class_of(tag, labels) for tag in tags) if tag is not None]
        return TagExample(row.id, tokens, tuple(known) if len(known) == len(tags) else None)

    def example_row(self, task: Task) -> dict[str, Any]:
        return {name: text.split() for name, text in super().example_row(task).items()}

    def records(self, task: Task, predictions: Logits) -> dict[str, dict[str, Any]]:
        """The lists of the tags and of their probabilities."""
        assert predictions.lengths is not None
        tags, shares = predictions.predictions(), metrics.softmax(predictions.logits).max(axis=1)  # (T,) each
        ends = np.cumsum(predictions.lengths)[:-1]
        return {
            name: {"prediction": [task.labels[tag] for tag in of_text.tolist()], "probability": of_shares.tolist()}
            for name, of_text, of_shares in zip(predictions.ids.tolist(), np.split(tags, ends), np.split(shares, ends))
        }

    def statistic(self, task: Task, metric: str, predictions: Logits) -> Statistic:
        if metric not in ENTITY_METRICS or predictions.labels is None:
            return super().statistic(task, metric, predictions)
        counts = entity_counts(task, predictions)  # (N, 3)

        def compute(texts: NDArray[np.int64]) -> float:
            right, predicted, true = counts[texts].sum(axis=0).tolist()
            above = 2 * right if metric == "entity_f1" else right
            below = {"entity_f1": predicted + true, "entity_precision": predicted, "entity_recall": true}[metric]
            return above / below if below else 0.0

        return compute
