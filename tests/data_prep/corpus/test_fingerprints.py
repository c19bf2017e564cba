"""Fingerprints: equal for equal texts, partly equal for texts with a common part."""

import itertools

import numpy as np
import pytest

from data_prep.corpus import fingerprints
from data_prep.corpus.fingerprints import BANDS, ROWS, fingerprints_of, same
from data_prep.corpus.word_runs import skeleton
from tests.data_prep import corpora
from tests.data_prep.corpus.editions import edit


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


@pytest.mark.parametrize(
    ("one", "other"),
    [
        *(("honour", "Honor,"), ("vpon", "upon"), ("publick", "public"), ("loue", "“love”"), ("realise", "realize")),
        *(("to-day", "today"), ("connexion", "conexion"), ("naïve", "naive"), ("giue", "give;"), ("shew'd", "showed")),
    ],
)
def test_spellings_of_a_word_have_one_skeleton(one: str, other: str) -> None:
    words = ["1900", "1990", "1099", "house", "mouse", "garden", "king", "queen", "north", "south", "прости", "東京"]
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
