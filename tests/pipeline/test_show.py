"""`python -m pipeline.show`: what is printed of a row is what training reads of it."""

import re
import sys

import numpy as np
import pytest

from data_prep.text.vocabulary import MASK_ID
from model.layers.heads import IGNORED_LABEL
from pipeline import show
from pipeline.data import masking
from pipeline.data.masking import MaskingSettings, Spans
from pipeline.data.mixture import open_mixture
from tests.pipeline.conftest import run


def collator_of(corpus, vocabulary, objective="sop"):
    return open_mixture([corpus.train], [1], vocabulary.continues_word, objective, 3, MaskingSettings()).collators[0]


def marked(piece):
    """Piece, predicted or not, and what the model sees, of one printed piece."""
    found = re.fullmatch(r"\{(.+?)( =| > (.+))?\}", piece)
    if found is None:
        return piece, False, piece
    seen = found[1] if found[2] == " =" else found[3] if found[2] else "[MASK]"
    return found[1], True, seen


@pytest.mark.parametrize("objective", ["sop", "nsp", "mlm"])
def test_what_is_printed_is_what_training_reads(corpus, vocabulary, objective):
    collator = collator_of(corpus, vocabulary, objective)
    labels = set()
    for index in range(0, len(collator.shards), 7):
        batch = collator.read([2], [index])
        pieces = show.shown_pieces(batch, 0, vocabulary.pieces)
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


def test_masks_are_counted(corpus, vocabulary):
    collator = collator_of(corpus, vocabulary)
    rows = range(len(collator.shards))
    sampled, realised, figures = show.count_masks(collator, 0, rows)
    batch = collator.read([0] * len(rows), list(rows))
    spans = [collator.spans(0, row) for row in rows]
    words_sampled, words = (
        np.concatenate([getattr(of_row, name) for of_row in spans]) for name in ("sampled", "words")
    )
    used = batch.masked_labels != IGNORED_LABEL
    assert sum(of_row.tokens.sum() for of_row in spans) == used.sum()
    assert sampled[0] == realised[0] == 0
    assert sum(sampled) == sum(realised) == len(words)
    assert [sum(n * count for n, count in enumerate(counts)) for counts in (sampled, realised)] == [
        words_sampled.sum(),
        words.sum(),
    ]
    # p(n) is proportional to 1 / n: a chi-squared with two degrees of freedom is below 13.8 in 99.9 % of draws.
    expected = np.array([6, 3, 2]) / 11 * len(words)
    assert ((np.array(sampled[1:]) - expected) ** 2 / expected).sum() < 13.8
    seen = np.take_along_axis(batch.input_ids, batch.masked_positions, axis=1)[used]
    assert dict(figures)["shown as [MASK]"] == f"{(seen == MASK_ID).mean():.2%}"


def test_spans_may_be_longer_than_the_longest_ngram(corpus, vocabulary, monkeypatch):
    collator = collator_of(corpus, vocabulary)
    longer = lambda words, *_: Spans(words.starts[:1], *(np.array([value]) for value in (1, 1, 7, 0)))  # noqa: E731
    monkeypatch.setattr(masking, "choose_spans", longer)
    sampled, realised, figures = show.count_masks(collator, 0, range(4))
    assert (sampled, realised) == ([0, 0, 0, 0, 0, 0, 0, 4], [0, 4, 0, 0, 0, 0, 0, 0])
    assert dict(figures)["n-grams of 7"] == "100.00% sampled, 0.00% realised"


def test_the_command(corpus, tmp_path, capsys):
    result = run(sys.executable, "-m", "pipeline.show", corpus.train, "-n", "2", "--objective", "nsp")
    assert result.stdout.count(" in epoch 0: ") == 2
    assert show.main([str(corpus.train), "--masks", "20", "--out", str(tmp_path / "plots")]) == 0
    assert "n-grams of 3" in capsys.readouterr().out
    assert (tmp_path / "plots" / "ngrams.png").read_bytes().startswith(b"\x89PNG")
    other = ["--max-ngram", "2", "--mask-replacement", "1,0,0", "--mask-probability", "0.3"]
    assert show.main([str(corpus.train), "--masks", "20", "--out", str(tmp_path / "others"), *other]) == 0
    printed = capsys.readouterr().out
    assert "n-grams of 2" in printed
    assert "n-grams of 3" not in printed
    assert re.search(r"shown as \[MASK\] +100\.00%", printed)
    assert 0.25 < float(re.search(r"special ones included \((.+)%\)", printed)[1]) / 100 < 0.31


@pytest.mark.parametrize(
    "words",
    [
        *(["--row", "99999"], ["--epoch", "-1"], ["--masks", "0"], ["-n", "0"]),
        *(["--row", "99999", "--masks", "5"], ["--row", "-1", "--masks", "5"]),
    ],
)
def test_mistakes_are_one_line(corpus, capsys, words):
    assert show.main([str(corpus.train), *words]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"error: {words[0]} is {words[1]}")
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize(("made", "said"), [(False, "is not a directory"), (True, "has no manifest.json")])
def test_a_directory_without_shards_is_said_to_have_none(tmp_path, capsys, made, said):
    directory = tmp_path / "shards"
    if made:
        directory.mkdir()
    assert show.main([str(directory)]) == 2
    assert capsys.readouterr().err.startswith(f"error: {directory} {said}; ")
