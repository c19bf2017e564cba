"""Masked sentences with the model's guesses, for people to read."""

import re

import numpy as np
from numpy.typing import NDArray

from data_prep.vocabulary import WORD_START
from pipeline.batches import IGNORED, Batch

_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#|~])")


def show(batch: Batch, guesses: NDArray[np.integer], pieces: list[str], count: int = 3) -> list[str]:
    """The first `count` sequences with a prediction, in Markdown.

    A masked token that was guessed stands in bold; one that was not, struck through before the guess in bold.

    Args:
        guesses: (B, M) the likeliest token of each masked position.
        pieces: the vocabulary's, V strings.
    """
    shown: list[str] = []
    for index in range(len(batch.input_ids)):
        used = batch.masked_labels[index] != IGNORED  # (M,)
        answers = dict(
            zip(
                batch.masked_positions[index][used].tolist(),
                zip(batch.masked_labels[index][used].tolist(), guesses[index][used].tolist()),
            )
        )
        for sequence in range(int(batch.sequence_ids[index].max()) + 1):
            positions = np.flatnonzero(batch.sequence_ids[index] == sequence).tolist()
            if len(shown) < count and not answers.keys().isdisjoint(positions):
                tokens = batch.input_ids[index].tolist()
                words = [_word(pieces, tokens[position], answers.get(position)) for position in positions]
                shown.append("".join(words).strip())
    return shown


def _word(pieces: list[str], token: int, answer: tuple[int, int] | None) -> str:
    if answer is None:
        space, text = _split(pieces[token])
        return space + text
    label, guess = answer
    space, text = _split(pieces[label])
    guessed = _split(pieces[guess])[1]
    return f"{space}**{text}**" if guess == label else f"{space}~~{text}~~ **{guessed}**"


def _split(piece: str) -> tuple[str, str]:
    """The space before a piece, and its text with what Markdown would take for marks escaped."""
    special = piece in ("[CLS]", "[SEP]", "[MASK]")
    space = " " if piece.startswith(WORD_START) or special else ""
    return space, _MARKDOWN.sub(r"\\\1", piece.removeprefix(WORD_START))
