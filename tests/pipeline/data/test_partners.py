"""Negative second segments of next-sentence prediction."""

import numpy as np

from pipeline.data.partners import DRAWS, draw_partners
from tests.pipeline.data.test_collate import MemoryShards, make_row


def test_a_negative_is_cut_before_a_word_and_inside_its_last_sentence_as_a_true_one() -> None:
    """Every token has an id of its own, so the place of a segment shows; a third of the ids continue a word."""
    rng = np.random.default_rng(0)
    continues_word = rng.random(1 << 16) < 0.33
    rows, start = [], 5
    for number in range(400):
        lengths = rng.integers(1, 30), rng.integers(5, 30), rng.integers(5, 30), rng.integers(1, 30)
        parts = []
        for length in lengths:
            parts.append(range(start, start + length))
            start += length
        rows.append(make_row([parts], number))
    shards = MemoryShards(rows, 256)
    whole, cut = (np.array([getattr(row.parts, name)[0] for row in rows]) for name in ("b", "trail"))
    partners = draw_partners(
        shards, np.arange(400), whole, cut, np.random.default_rng(1).random((400, DRAWS)), continues_word
    )
    trails = {row.tokens[-1]: row.parts.trail[0] for row in rows}
    last_of_b = {int(last) - int(trail) for last, trail in trails.items()}
    found = [
        (int(one[-1]), length) for one, length in zip(partners, whole + cut) if one is not None and len(one) == length
    ]
    assert len(found) > 380
    assert sum(bool(continues_word[last + 1]) and last not in trails for last, _ in found) < 4
    assert sum(last in last_of_b for last, _ in found) < 4
