"""`python -m pipeline.show`: what is printed of a row is what training reads of it."""

import re
import sys

import pytest

from model.layers.heads import IGNORED_LABEL
from pipeline import show
from pipeline.data.masking import MaskingSettings
from pipeline.data.mixture import open_mixture
from tests.pipeline.conftest import run


def marked(piece):
    """Piece, predicted or not, and what the model sees, of one printed piece."""
    found = re.fullmatch(r"\{(.+?)( =| > (.+))?\}", piece)
    if found is None:
        return piece, False, piece
    seen = found[1] if found[2] == " =" else found[3] if found[2] else "[MASK]"
    return found[1], True, seen


@pytest.mark.parametrize("objective", ["sop", "nsp", "mlm"])
def test_what_is_printed_is_what_training_reads(corpus, vocabulary, objective):
    mixture = open_mixture([corpus.train], [1], vocabulary.continues_word, objective, 3, MaskingSettings())
    (collator,), labels = mixture.collators, set()
    for index in range(0, len(collator.shards), 7):
        batch = collator.read([2], [index])
        pieces = show.shown_pieces(batch, vocabulary.pieces)
        at = {int(p): int(t) for p, t in zip(batch.masked_positions[0], batch.masked_labels[0]) if t != IGNORED_LABEL}
        for position, piece in enumerate(pieces):
            original, predicted, seen = marked(piece)
            assert predicted == (position in at)
            assert seen == vocabulary.pieces[batch.input_ids[0, position]]
            assert original == vocabulary.pieces[at.get(position, batch.input_ids[0, position])]
        text = "\n".join(show.describe_row(collator, index, 2, vocabulary))
        used = int((batch.sequence_ids[0] >= 0).sum())
        assert text.startswith(f"row {index} in epoch 2: ")
        assert f"{used} of 64 positions, {len(at)} predictions" in text
        # Wrapped, indented and headed by "A" and "B", but every piece, in order.
        lines = [line for line in text.splitlines() if line.startswith("     ") or line[:5].strip() in ("A", "B")]
        printed = " ".join(line[5:].strip() for line in lines)
        assert printed.split() == " ".join(pieces[:used]).split()
        assert objective != "mlm" or "no B" not in text
        labels |= {int(label) for label in re.findall(r"\(label (\d)\)", text)}
    assert labels == (set() if objective == "mlm" else {0, 1})


def test_the_command(corpus):
    result = run(sys.executable, "-m", "pipeline.show", corpus.train, "-n", "2", "--objective", "nsp")
    assert result.stdout.count(" in epoch 0: ") == 2


@pytest.mark.parametrize("words", [["--row", "99999"], ["--epoch", "-1"], ["--sentences"]])
def test_mistakes_are_one_line(corpus, refusal, words):
    assert words[0] in refusal(show.main, corpus.train, *words)
