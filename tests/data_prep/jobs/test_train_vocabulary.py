"""`vocab`: its sample, its files, and its messages for mistakes."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import UserError
from data_prep.__main__ import main
from data_prep.jobs.train_vocabulary import choose, cut, quotas
from data_prep.text.load_vocabulary import load_vocabulary


@given(counts=st.lists(st.integers(0, 10_000), min_size=1, max_size=30), most=st.integers(1, 50_000))
def test_quotas_add_up_and_are_proportional(counts: list[int], most: int) -> None:
    taken = quotas(counts, most)
    total = sum(counts)
    assert sum(taken) == min(total, most)
    for count, quota in zip(counts, taken):
        assert 0 <= quota <= count
        if total > most:
            assert abs(quota - count * most / total) < 1


def test_each_sentence_is_as_likely_as_another() -> None:
    drawn = np.zeros(100)
    for seed in range(2000):
        chosen = choose(100, 20, seed, unit=3)
        assert (np.diff(chosen) > 0).all()
        drawn[chosen] += 1
    # 2000 draws of probability 0.2: mean 400, deviation 18.
    assert abs(drawn - 400).max() < 5 * 18


@given(
    st.lists(st.sampled_from(["a", "word", "né", "語語", "😀" * 9, "x" * 40]), min_size=1, max_size=40).map(" ".join)
)
def test_what_is_too_long_is_cut_at_white_space(sentence: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("data_prep.jobs.train_vocabulary.MAX_SENTENCE_BYTES", 48)
        parts = cut(sentence)
    assert all(0 < len(part.encode()) <= 48 and part == part.strip() for part in parts)
    assert "".join(parts).replace(" ", "") == sentence.replace(" ", "")
    assert (len(parts) == 1) == (len(sentence.encode()) <= 48)
    if max(map(len, sentence.split())) <= 12:
        assert " ".join(parts) == sentence


@pytest.mark.parametrize("others", [0, 3])
def test_a_text_without_sentence_ends_trains(tmp_path: Path, capsys: pytest.CaptureFixture[str], others: int) -> None:
    """SentencePiece skips what is longer than 65,536 bytes, and had nothing left, or the rest only."""
    lexicon = [f"{a}{b}{c}" for a in "bdfgk" for b in "aeiou" for c in "lmnrst"]
    text = " ".join(lexicon[number * 7 % 150] for number in range(18_000))
    lines = [text, *(f"It is line {number}." for number in range(others))]
    (tmp_path / "a.txt").write_text("\n\n".join(lines))
    main(["extract", "--source", "text", "--input", str(tmp_path / "a.txt"), "--out", str(tmp_path / "documents")])
    vocab(tmp_path / "documents", tmp_path / "v.model", "--size", "60")
    sample = json.loads((tmp_path / "v.json").read_text())["sample"]
    assert sample["cut"] == 1
    assert sample["characters"] > 0.99 * len(text)
    assert "note: 1 sentences of more than 65,536 bytes were cut" in capsys.readouterr().out
    pieces = load_vocabulary(tmp_path / "v.model").pieces
    assert sum(len(piece.strip("▁")) > 1 for piece in pieces[13:]) > 10


def vocab(documents: Path, out: Path, *options: str) -> None:
    main(["vocab", "--documents", str(documents), "--out", str(out), "--size", "300", *options])


def test_a_sample_is_reproducible_and_described(documents_directory, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("data_prep.corpus.work_units.MIN_UNIT_BYTES", 50_000)
    for name, seed in (("a", "0"), ("b", "0"), ("c", "1")):
        vocab(documents_directory, tmp_path / f"{name}.model", "--sentences", "1000", "--seed", seed)
    printed = capsys.readouterr().out
    assert "training 300 pieces on 1,000 of 3," in printed
    a, b, c = ((tmp_path / f"{name}.model").read_bytes() for name in "abc")
    assert a == b
    assert a != c
    record = json.loads((tmp_path / "a.json").read_text())
    assert record["sample"]["sampled"] == 1000
    assert "the same share" in record["sample"]["method"]
    assert record["model_sha256"] == hashlib.sha256(a).hexdigest()
    assert {path.name for path in tmp_path.iterdir()} == {f"{n}.{e}" for n in "abc" for e in ("model", "json")}


def test_a_second_run_has_nothing_to_do_and_another_vocabulary_stays(documents_directory, tmp_path, capsys):
    out = tmp_path / "v.model"
    vocab(documents_directory, out)
    before = out.read_bytes()
    vocab(documents_directory, out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["v.json", "v.model"]
    assert "nothing to do" in capsys.readouterr().out
    with pytest.raises(UserError, match="size is 300 there, 299 was asked for"):
        main(["vocab", "--documents", str(documents_directory), "--out", str(out), "--size", "299"])
    assert out.read_bytes() == before
    out.write_bytes(before + b"x")
    with pytest.raises(UserError, match="its content is not what was recorded"):
        vocab(documents_directory, out)
    out.unlink()
    for damaged in ("", "{}", '{"options": 1, "model_sha256": ""}'):
        out.with_suffix(".json").write_text(damaged)
        with pytest.raises(UserError, match=r"v\.json [^;]+; it should say how .*v\.model was made"):
            vocab(documents_directory, out)
    assert not out.exists()


def test_coverage_and_bytes_are_recorded(documents_directory: Path, tmp_path: Path) -> None:
    out = tmp_path / "v.model"
    options = ["--size", "900", "--byte-fallback", "--character-coverage", "0.999"]
    vocab(documents_directory, out, *options)
    recorded = json.loads(out.with_suffix(".json").read_text())["options"]
    assert (recorded["byte_fallback"], recorded["character_coverage"]) == (True, 0.999)
    assert "<0xFF>" in load_vocabulary(out).pieces
    with pytest.raises(UserError, match="byte_fallback"):
        vocab(documents_directory, out, "--size", "900")
