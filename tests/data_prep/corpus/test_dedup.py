"""Fingerprints; and `shards --dedup`, which keeps the right document of each group, whatever is done at a time."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import UserError
from data_prep import mpi
from data_prep.__main__ import main
from data_prep.corpus import dedup, fingerprints, work_units
from data_prep.corpus.documents import Document
from data_prep.corpus.fingerprints import BANDS, ROWS, fingerprints_of, same
from data_prep.corpus.word_runs import skeleton
from data_prep.format import shard_manifest as manifests
from data_prep.format import shards
from data_prep.text.sentences import split_sentences
from tests.data_prep import corpora
from tests.data_prep.corpus.editions import edit


def text_of(seed: int, sentences: int = 12) -> str:
    return " ".join(corpora.make_sentences(sentences, seed))


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two directories of 60 different documents each, to which duplicates were added.

    Names say what they are: "copy-of-3" has the text of "a-3" with other white space, "edition-of-3" is edited.
    """
    root = tmp_path_factory.mktemp("documents")
    first = [Document(f"a-{n}", "", text_of(n, 160 if n < 10 else 12)) for n in range(60)]
    second = [Document(f"b-{n}", "", text_of(1000 + n)) for n in range(60)]
    second += [Document(f"copy-of-{n}", "", first[n].text.upper().replace(" ", "  ")) for n in (3, 20, 41)]
    second += [Document(f"edition-of-{n}", "", edit(first[n].text, n, 0.03)) for n in (3, 4, 5)]
    first += [Document("copy-of-b-7", "", second[7].text)]
    first += [Document(f"edition-of-{n}", "", edit(first[n].text, 50 + n, 0.03)) for n in (5, 6)]
    held_out = [Document("held-0", "", text_of(9000)), Document("held-edition-of-6", "", edit(first[6].text, 9, 0.03))]
    held_out.append(Document("held-copy-of-held-0", "", held_out[0].text))
    held_out.append(Document("held-copy-of-b-9", "", second[9].text))
    places = (root / "first", first, 2, []), (root / "second", second, 2, held_out)
    return corpora.write_documents(*places[0]), corpora.write_documents(*places[1])


def command(directories: tuple[Path, ...], vocabulary: Path, out: Path, *options: str) -> list[str]:
    job = ["shards", "--documents", *map(str, directories), "--vocab", str(vocabulary), "--out", str(out)]
    return [*job, "--max-seq-length", "64", "--keep-similar", *options]


def removed_of(out: Path) -> dict[str, str]:
    """Maps the id of each document that was left out to that of the kept one."""
    lines = [json.loads(line) for line in (out / "duplicates.jsonl").read_text(encoding="utf-8").splitlines()]
    return {line["removed"][1]: line["kept"][1] for line in lines}


EXACT_TRAIN = {"copy-of-3": "a-3", "copy-of-20": "a-20", "copy-of-41": "a-41", "b-7": "copy-of-b-7"}
EXACT_TRAIN |= {"b-9": "held-copy-of-b-9"}
NEAR_TRAIN = EXACT_TRAIN | {"edition-of-3": "a-3", "edition-of-4": "a-4", "a-6": "held-edition-of-6"}
NEAR_TRAIN |= {"edition-of-5": "a-5", "edition-of-6": "held-edition-of-6"}


@pytest.mark.slow
def test_the_first_of_a_group_stays_and_one_that_is_held_out_before_all(directories, vocabulary_file, tmp_path, capsys):
    out, expected = tmp_path / "set", NEAR_TRAIN
    main(command(directories, vocabulary_file, out, "--dedup", "near"))
    assert removed_of(out) == expected
    manifest = shards.open_shards(out).manifest
    # Of 5 there is an edition in each directory.
    count = len(expected) + 1
    assert manifest.counts.duplicates_left_out == count
    assert manifest.counts.documents == 129
    plain = tmp_path / "plain"
    main(command(directories, vocabulary_file, plain))
    left_out = 129 - manifest.counts.documents_left_out - count
    documents = np.unique(np.concatenate([row.documents for row in shards.open_shards(out)]))
    assert len(documents) == left_out
    # The others have the pairs that they have without --dedup.
    assert pairs_of(out, documents) == pairs_of(plain, documents)
    main(["verify", str(out)])
    assert not (out / ".units").exists()
    # Of a duplicate nothing is counted but that it is one.
    capsys.readouterr()
    main(["stats", str(out)])
    kept = [document for document in corpora.read_documents(directories) if document.id not in expected]
    mean = sum(len(split_sentences(document.text)) for document in kept) / len(kept)
    assert f"  sentences a document  {mean:,.1f}\n" in capsys.readouterr().out


def pairs_of(out: Path, documents: np.ndarray) -> set[tuple[int, tuple[int, ...]]]:
    found = set()
    for row in shards.open_shards(out):
        stops = np.cumsum(row.parts.total())
        for document, start, stop in zip(row.documents.tolist(), stops - row.parts.total(), stops):
            if document in documents:
                found.add((document, tuple(row.tokens[start:stop].tolist())))
    return found


def test_which_of_a_group_stays() -> None:
    documents = np.array([3, 4, 7, 8, 11, 12, 20])
    groups = np.array([0, 1, 0, 1, 0, 2, 2])
    kinds = np.array([1, 2, 1, 1, 2, 1, 1])
    sizes = np.array([70, 9, 100, 1, 500, 80, 100])
    # 3 is less than 0.8 of 7, and 11 of a later kind; 8 is of an earlier kind than 4; 12 is long enough.
    assert dedup.choose_kept(documents, groups, kinds, sizes).tolist() == [7, 8, 12]
    nothing = np.zeros(0, np.int64)
    assert len(dedup.choose_kept(nothing, nothing, nothing, nothing)) == 0


@pytest.mark.slow
def test_duplicates_of_other_shards_documents_go(directories, vocabulary_file, tmp_path):
    first, second = directories
    flags = ("--dedup", "near", "--against", str(first))
    main(command((second,), vocabulary_file, tmp_path / "set", *flags))
    expected = {removed: kept for removed, kept in NEAR_TRAIN.items() if removed not in ("a-6", "edition-of-6")}
    assert removed_of(tmp_path / "set") == expected
    # What the other corpus trains on cannot be held out here.
    main(command((second,), vocabulary_file, tmp_path / "held_out", *flags, "--split", "held_out"))
    assert removed_of(tmp_path / "held_out") == {"held-copy-of-held-0": "held-0", "held-edition-of-6": "a-6"}
    with pytest.raises(UserError, match="is in --documents and in --against; name it once"):
        main(command(directories, vocabulary_file, tmp_path, *flags))


@pytest.mark.slow
def test_parts_and_interruptions_do_not_show(directories, vocabulary_file, tmp_path, monkeypatch):
    monkeypatch.setattr(work_units, "MIN_UNIT_BYTES", 30_000)
    main(command(directories, vocabulary_file, tmp_path / "alone", "--dedup", "exact"))
    assert removed_of(tmp_path / "alone") == EXACT_TRAIN
    # Interrupted in each of its steps, and in many small parts.
    monkeypatch.setattr(dedup, "MAX_PART_DOCUMENTS", 50)
    monkeypatch.setattr(dedup, "MAX_PAIRS_IN_MEMORY", 3)
    again = command(directories, vocabulary_file, tmp_path / "again", "--dedup", "exact")
    steps = (dedup, "write_array", 2), (dedup, "equal_pairs", 1), (manifests, "write_manifest", 0), (mpi, "end_job", 0)
    for module, name, calls in steps:
        with monkeypatch.context() as patch:
            patch.setattr(module, name, interrupted(getattr(module, name), calls))
            with pytest.raises(KeyboardInterrupt):
                main(again)
    monkeypatch.setattr(dedup, "write_array", interrupted(dedup.write_array, 0))  # what was done is not done again
    main(again)
    assert corpora.contents(tmp_path / "again") == corpora.contents(tmp_path / "alone")


def interrupted(function: Any, after: int) -> Any:
    """Wraps `function`, which raises after `after` calls."""
    calls = itertools.count()

    def wrapper(*arguments: Any) -> Any:
        if next(calls) >= after:
            raise KeyboardInterrupt
        return function(*arguments)

    return wrapper


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=60))
def test_groups_are_connected_components(edges: list[tuple[int, int]]) -> None:
    pairs = np.array([(min(edge), max(edge)) for edge in edges if edge[0] != edge[1]], np.int64).reshape(-1, 2)
    parents = np.arange(31)
    for block in np.array_split(pairs, 3):
        dedup.join(parents, block)
    expected = list(range(31))
    for _ in range(31):
        for first, second in pairs.tolist():
            expected[first] = expected[second] = min(expected[first], expected[second])
    assert dedup.roots(parents, np.arange(31)).tolist() == expected


def test_the_pairs_found_are_those_of_all_comparisons(tmp_path: Path) -> None:
    """Compares the result of three units and four parts with that of comparing all documents with each other.

    The numbers of the last unit need 64 bits.
    """
    texts = [text_of(n // 3) if n % 3 else edit(text_of(n // 3), n, 0.0) for n in range(60)]
    taken = fingerprints.fingerprints_of(texts, "exact")
    firsts = [0, 25, 25, 60]
    for index, (first, stop) in enumerate(itertools.pairwise(firsts)):
        part = fingerprints.Fingerprints(*(field[first:stop] for field in taken))
        for name, array in part._replace(keys=part.keys.T)._asdict().items():
            np.save(tmp_path / f"{index:06d}.{name}.npy", np.ascontiguousarray(array))
    far = [0, 25, 2**33, 2**33 + 35]
    found = np.concatenate([dedup.equal_pairs(tmp_path, far, 0, part, 4) for part in range(4)])
    found[found >= 2**33] -= 2**33 - 25
    expected = {(i, j) for j in range(60) for i in range(j) if texts[i] == texts[j]}
    assert set(map(tuple, found.tolist())) == expected


def jaccard(first: str, second: str) -> float:
    """Computes the similarity by its definition, from sets of tuples of words."""
    shingles = []
    for text in (first, second):
        words = [bones for word in text.split() if (bones := skeleton(word))]
        shingles.append({tuple(words[i : i + 4]) for i in range(max(1, len(words) - 3))})
    return len(shingles[0] & shingles[1]) / len(shingles[0] | shingles[1])


def are_same(taken: fingerprints.Fingerprints, first: int, second: int) -> bool:
    pair = [[first, second]]
    return bool(same(taken.values[pair], taken.sizes[pair])[0])


def test_spellings_of_a_word_have_one_skeleton() -> None:
    same = {"honour": "Honor,", "vpon": "upon", "publick": "public", "loue": "“love”", "realise": "realize"}
    same |= {"to-day": "today", "connexion": "conexion", "naïve": "naive", "giue": "give;", "shew'd": "showed"}
    words = ["1900", "1990", "1099", "house", "mouse", "garden", "king", "queen", "north", "south", "прости", "東京"]
    for one, other in same.items():
        assert skeleton(one) == skeleton(other) not in ("", *map(skeleton, words))
    assert len({skeleton(word) for word in words}) == len(words)
    assert skeleton("—") == skeleton("a") == skeleton("...") == ""


def test_short_texts_after_one_pattern_stay_apart_and_exact_means_the_normalised_text() -> None:
    texts = [
        f"{name} is a 1921 American silent Western film directed by B. Reeves Eason and starring {star}."
        for name, star in (("The Four-Bit Man", "Tom Tyler"), ("The Tell Tale Wire", "Hoot Gibson"))
    ]
    same = texts[0].upper().replace(" ", "  ")
    for kind in ("near", "exact"):
        taken = fingerprints_of([*texts, same, texts[0][:-1], "Café", "cafe"], kind)
        assert [are_same(taken, 0, other) for other in (1, 2)] == [False, True]
        assert are_same(taken, 0, 3) == (kind == "near"), "the full stop"
        assert are_same(taken, 4, 5)


def test_the_similarity_is_that_of_the_sets_of_shingles() -> None:
    texts = [" ".join(corpora.make_sentences(120, seed)) for seed in range(2)]
    words = texts[0].split()
    for share in (0.2, 0.5, 0.8, 0.95):
        cut = int(share * len(words))
        texts.append(" ".join(words[:cut] + texts[1].split()[cut:]))
    taken = fingerprints_of(texts, "near")
    for first, second in itertools.combinations(range(len(texts)), 2):
        expected = jaccard(texts[first], texts[second])
        # Four standard errors of a share of 126, and what 16 bits agree by chance.
        found = (taken.values[first] == taken.values[second]).mean()
        assert abs(found - expected) < 4 * (max(expected, 0.02) / 126) ** 0.5


def test_keys_agree_where_all_values_of_a_band_do() -> None:
    base = " ".join(corpora.make_sentences(60, 1))
    texts = [edit(base, seed, 0.05) for seed in range(12)]
    taken = fingerprints_of(texts, "near")
    assert taken.keys.shape == (12, BANDS)
    agreements = set()
    for first, second in itertools.combinations(range(12), 2):
        bands = (taken.values[first] == taken.values[second]).reshape(BANDS, ROWS).all(axis=1)
        np.testing.assert_array_equal(taken.keys[first] == taken.keys[second], bands)
        agreements.add(int(bands.sum()))
    assert len(agreements) > 3


@pytest.mark.parametrize(
    "texts",
    [
        *(["😀 😀 😀", "🚀 🚀 🚀", "★ → ★", "!!! ???", "..."], ["aeiou", "oui", "eau", "I a o", "у о а", "あ"]),
        ["ok 😀", "ok 🚀", "k!", "No way 😀 bro", "No way 🚀 bro"],
    ],
)
def test_short_texts_and_texts_without_consonants_are_equal_only_if_their_characters_are(texts: list[str]) -> None:
    taken = fingerprints_of([*texts, *(f"  {text.upper()}\n" for text in texts)], "near")
    count = len(texts)
    for first, second in itertools.combinations(range(2 * count), 2):
        assert are_same(taken, first, second) == (second == first + count)
        shares_key = bool((taken.keys[first] == taken.keys[second]).any())
        assert shares_key == (second == first + count)
