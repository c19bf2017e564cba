"""Shows masked sentences with the model's predictions, as a Markdown table for people."""

import html
import itertools
import re

import numpy as np
from numpy.typing import NDArray

from data_prep.text.vocabulary import WORD_START
from model.layers.heads import IGNORED_LABEL
from pipeline.data.collate import Batch

HEADER = ("| the text, masked tokens in bold | what the model reads, wrong tokens after ✗ | right |", "|---|---|---|")
MAX_PIECES = 60
"""Pieces of a sequence that are shown; a row of 512 tokens would fill the screen."""
_MARKDOWN = re.compile(r"([\\`*_{}\[\]#|~])")
_MASKED, _WRONG = ("<strong>", "</strong>"), ("<em>✗", "</em>")
# Tags instead of Markdown's marks: marks side by side, as in `**a****b**`, are ambiguous.


def show(batch: Batch, predicted_tokens: NDArray[np.integer], pieces: list[str], count: int = 3) -> list[str]:
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
