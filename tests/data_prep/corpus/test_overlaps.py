"""`shards` leaves out what is similar to held-out documents."""

import hashlib
import itertools
import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import UserError
from data_prep.__main__ import main
from data_prep.corpus import overlaps, word_runs
from data_prep.corpus.documents import Document
from data_prep.corpus.word_runs import read_runs, skeleton
from data_prep.corpus.work_units import open_corpus
from data_prep.format import shards
from data_prep.mpi import describe_differences
from tests.data_prep import corpora
from tests.data_prep.corpus.editions import edit
from tests.data_prep.corpus.test_dedup import interrupted, text_of


def shards_of(out: Path, vocabulary: Path, *options: object) -> list[dict[str, Any]]:
    """Makes shards in `out`. Returns the lines of what was left out."""
    words = ["shards", "--vocab", vocabulary, "--out", out, "--max-seq-length", 64, *options]
    main([*map(str, words)])
    path = out / "overlaps.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


@given(
    texts=st.lists(st.text(alphabet="abb Bk1é.-—中が\0\nßΣﬂ\u2028“😀", max_size=30), max_size=8),
    length=st.integers(1, 5),
    piece=st.integers(1, 40),
    others=st.sampled_from([0.0, 0.3, 2.0]),
)
def test_runs_are_those_of_each_text_alone(texts: list[str], length: int, piece: int, others: float) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(word_runs, "_PIECE_CHARACTERS", piece)
        patch.setattr(word_runs, "_FEW_OTHERS", others)
        runs = read_runs(texts, length)
    hashes = np.concatenate([np.zeros(0, np.uint64), *runs.hashes])
    numbers, inside = runs.texts_of(np.arange(len(hashes)))
    expected = [(number, run) for number, text in enumerate(texts) for run in runs_of(text, length)]
    assert numbers[inside].tolist() == [number for number, _ in expected]
    assert runs.sizes.tolist() == [sum(number == one for one, _ in expected) for number in range(len(texts))]
    hash_of = {run: value for value, (_, run) in zip(hashes[inside].tolist(), expected)}
    assert hashes[inside].tolist() == [hash_of[run] for _, run in expected]
    assert len(set(hash_of.values())) == len(hash_of)


def runs_of(text: str, length: int) -> list[tuple[str, ...]]:
    """Returns the runs of words of a text by their definition."""
    for divider in "-—\0":
        text = text.replace(divider, " ")
    for sign in "中が":
        text = text.replace(sign, f" {sign} ")
    words = [word.replace("ς", "σ") for word in map(skeleton, text.split()) if word]
    return [tuple(words[n : n + length]) for n in range(len(words) - length + 1)]


def test_similar_documents_are_those_of_all_comparisons() -> None:
    """Compares with counting the common runs of every two texts: long and short ones, excerpts of different sizes."""
    held_out = [text_of(seed, sentences) for seed, sentences in ((1, 200), (2, 160), (3, 12), (4, 4), (5, 1))]
    held_out += [" ".join([held_out[2], held_out[3]]), held_out[3]]  # what several have counts for each of them
    documents = []
    for seed, text in itertools.product(range(12), held_out):
        words = edit(text, seed, 0.01 * seed).split()
        first, *others = text_of(100 + seed, 1 << seed % 10).split(), *words[: len(words) * (seed + 1) // 12]
        documents.append(" ".join([*first, *others] if seed % 2 else others))
    expected = {}
    for number, document in enumerate(documents):
        own, best = runs_of(document, 8), 0.0
        for owner, text in enumerate(held_out):
            others = set(runs_of(text, 8))
            is_shorter, shorter = len(own) <= len(others), min(len(own), len(others))
            common = sum(run in others for run in own) if is_shorter else len(others.intersection(own))
            enough = is_shorter or common >= 16
            if shorter and common >= (0.2 if shorter >= 1000 else 0.5) * shorter and enough and common / shorter > best:
                expected[number], best = owner, common / shorter
    found = overlaps.most_similar(overlaps.Index.of(held_out), documents)
    assert found == expected
    assert 25 < len(found) < 65


def test_what_a_text_repeats_counts_once_of_a_shorter_held_out_one() -> None:
    """A refrain of 700 verses that a held-out text has once does not make them similar; a copy of them is similar."""
    line, (first, other) = "one two three four five six seven eight", (text_of(seed, 300) for seed in (1, 2))
    song = f"{other} {' '.join([line] * 700)}"
    assert overlaps.most_similar(overlaps.Index.of([f"{first} {line}"]), [song]) == {}
    assert overlaps.most_similar(overlaps.Index.of([song]), [song, f"{song} {first}"]) == {0: 0, 1: 0}


def test_both_ways_of_spelling_give_the_same_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every character: in an English text it is spelled in another way than in a Greek one."""
    text = "".join(map(chr, [*range(1, 0xD800), *range(0xE000, 0x30000)]))
    monkeypatch.setattr(word_runs, "_FEW_OTHERS", 2.0)
    spelled = [
        way.translate(word_runs._TABLE) for way in (word_runs._spell(text), text.translate(word_runs._SPELLED).encode())
    ]
    assert len({letters.replace(b"\xff", b"") for letters in spelled}) == 1


def test_a_refused_start_says_in_words_which_documents_are_others() -> None:
    here, there = ({"documents_digest": one, "seed": 1} for one in "ab")
    assert describe_differences(here, there | {"seed": 2}) == "other documents there; seed is 1 there, 2 was asked for"


def test_of_two_held_out_documents_that_are_equally_similar_the_first_is_named() -> None:
    texts = [text_of(seed, 12) for seed in (7, 8)]
    for held_out in (texts, texts[::-1]):
        assert overlaps.most_similar(overlaps.Index.of(held_out), [" ".join(texts), texts[1]])[0] == 0


def test_text_that_several_held_out_documents_have_counts_for_each_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [text_of(seed, 4) for seed in range(10, 13)]
    whole, longer = " ".join(parts), [f"{part} {text_of(20 + n, 30)}" for n, part in enumerate(parts)]
    assert overlaps.most_similar(overlaps.Index.of([*longer, whole]), [whole]) == {0: 3}
    monkeypatch.setattr(overlaps, "MAX_OWNERS", 2)
    index = overlaps.Index.of([parts[0]] * 3)
    assert sorted(index.owners.tolist()) == [0] * (len(index.owners) // 2) + [1] * (len(index.owners) // 2)


def test_text_that_all_documents_have_takes_no_memory_for_each_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_runs, "_PIECE_CHARACTERS", 1 << 14)
    licence, peaks = text_of(1, 12), []
    for owners in (1, overlaps.MAX_OWNERS):
        monkeypatch.setattr(overlaps, "MAX_OWNERS", owners)
        index = overlaps.Index.of([f"{licence} {text_of(100 + n, 40)}" for n in range(64)])
        tracemalloc.start()
        overlaps.most_similar(index, [f"{licence} {text_of(1000, 40)}"] * 400)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 3 * peaks[0]


def test_a_few_words_of_a_held_out_document_make_no_book_similar() -> None:
    book = text_of(3, 300)
    line = " ".join(book.split()[50:70])
    assert overlaps.most_similar(overlaps.Index.of([line]), [book, line]) == {1: 0}
    assert overlaps.most_similar(overlaps.Index.of(["too short for a run"]), [book, line]) == {}


def test_held_out_text_is_clean_by_default(vocabulary_file, tmp_path, capsys):
    """Editions, copies and parts, in both directions, in two directories; other documents keep their pairs."""
    long, short, novel = text_of(1, 200), text_of(2, 12), corpora.make_sentences(400, 3)
    held_out = [Document("long", "", long), Document("short", "", short), Document("part", "", " ".join(novel[:60]))]
    train = [Document(f"other-{n}", "", text_of(100 + n)) for n in range(20)]
    train[3:3] = [Document("edition", "", edit(long, 5, 0.05)), Document("copy", "", short.upper())]
    more = [Document("novel", "", " ".join(novel)), Document("excerpt", "", " ".join(long.split()[900:1000]))]
    more += [Document("different", "", text_of(300, 150))]
    first = corpora.write_documents(tmp_path / "first", train, held_out=held_out)
    second = corpora.write_documents(tmp_path / "second", more)
    flags = ("--documents", first, second)
    lines = shards_of(tmp_path / "set", vocabulary_file, *flags)
    assert {line["removed"][1]: line["similar"] for line in lines} == {
        "edition": ["first", "long"],
        "copy": ["first", "short"],
        "novel": ["first", "part"],
        "excerpt": ["first", "long"],
    }
    assert "0 as duplicates, 4 as similar to held-out ones\n" in capsys.readouterr().out
    manifest = shards.open_shards(tmp_path / "set").manifest
    assert (manifest.counts.documents, manifest.counts.similar_left_out) == (25, 4)
    assert manifest.counts.documents_left_out == 0
    held, train = (
        open_corpus(places, split).digest for places, split in (([first], "held_out"), ([first, second], "train"))
    )
    digests = f"1 {held} 0\n", f"held_out \ntrain \nheld_out {held}\ntrain {train}\n"
    expected = [hashlib.sha256(text.encode()).hexdigest() for text in digests]  # which shards of earlier versions have
    main(["verify", str(tmp_path / "set")])
    assert not (tmp_path / "set" / ".units").exists()
    assert shards_of(tmp_path / "set", vocabulary_file, *flags) == lines
    assert "nothing to do" in capsys.readouterr().out
    assert shards_of(tmp_path / "near", vocabulary_file, *flags, "--dedup", "near") == lines
    near = shards.open_shards(tmp_path / "near").manifest
    assert [near.overlaps_digest, near.compared_digest] == expected
    counts = near.counts
    assert counts.duplicates_left_out + counts.similar_left_out == 4
    assert shards_of(tmp_path / "all", vocabulary_file, *flags, "--keep-similar") == []
    assert shards.open_shards(tmp_path / "all").manifest.counts.similar_left_out == 0
    with pytest.raises(UserError, match=r"\(other --keep-similar, --held-out-of or held-out documents there\)"):
        shards_of(tmp_path / "all", vocabulary_file, *flags)
    ids = [document.id for document in corpora.read_documents((first, second))]
    everything, kept = (
        {ids[number] for row in shards.open_shards(tmp_path / name) for number in row.documents}
        for name in ("all", "set")
    )
    assert everything - kept == {"edition", "copy", "novel", "excerpt"}
    lines = shards_of(tmp_path / "other", vocabulary_file, "--documents", second, "--held-out-of", first)
    assert {line["removed"][1] for line in lines} == {"novel", "excerpt"}
    assert shards_of(tmp_path / "held_out", vocabulary_file, "--documents", first, "--split", "held_out") == []
    with pytest.raises(UserError, match="--held-out-of keeps other splits clean"):
        shards_of(tmp_path / "no", vocabulary_file, *flags, "--keep-similar", "--held-out-of", second)


@pytest.mark.parametrize("dedup", ["none", "exact", "near"])
def test_validation_text_is_clean_and_apart_from_training(vocabulary_file, tmp_path, dedup):
    """Of equal texts that of held-out text stays, then that of validation, whatever `--dedup` says."""
    texts = [text_of(n) for n in range(7)]
    held_out, validation, train = (
        [Document(f"{split}-{n}", "", texts[n]) for n in numbers]
        for split, numbers in (("held", (4, 5, 6)), ("validation", (2, 3, 4)), ("train", (0, 1, 2, 5)))
    )
    place = corpora.write_documents(tmp_path / "documents", train, 1, held_out, validation)
    kept = {}
    for split in ("train", "validation", "held_out"):
        flags = ("--documents", place, "--split", split, "--dedup", dedup, *(["--keep-similar"] * (dedup != "none")))
        shards_of(tmp_path / split, vocabulary_file, *flags)
        numbers = {number for row in shards.open_shards(tmp_path / split) for number in row.documents}
        ids = [document.id for document in corpora.read_documents([place], split)]
        kept[split] = {ids[number] for number in numbers}
    assert kept == {
        "train": {"train-0", "train-1"},
        "validation": {"validation-2", "validation-3"},
        "held_out": {"held-4", "held-5", "held-6"},
    }


def test_an_interrupted_search_goes_on(vocabulary_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("data_prep.corpus.work_units.MIN_UNIT_BYTES", 4000)
    held_out = [Document(f"h-{n}", "", text_of(n)) for n in range(60)]
    train = [Document(f"t-{n}", "", edit(text_of(n), n, 0.02) if n % 9 == 0 else text_of(n + 99)) for n in range(60)]
    flags = ("--documents", corpora.write_documents(tmp_path / "documents", train, held_out=held_out))
    expected = shards_of(tmp_path / "whole", vocabulary_file, *flags)
    assert [line["removed"][1] for line in expected] == [f"t-{n}" for n in range(0, 60, 9)]
    units, search = len(shards.open_shards(tmp_path / "whole").manifest.shards()), overlaps.most_similar
    monkeypatch.setattr(overlaps, "most_similar", interrupted(search, 2))
    with pytest.raises(KeyboardInterrupt):
        shards_of(tmp_path / "set", vocabulary_file, *flags)
    monkeypatch.setattr(overlaps, "most_similar", interrupted(search, units - 2))  # what was done is not done again
    assert shards_of(tmp_path / "set", vocabulary_file, *flags) == expected
    assert corpora.contents(tmp_path / "set") == corpora.contents(tmp_path / "whole")
    assert units > 4
