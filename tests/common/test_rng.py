"""Random numbers are those of Philox-4x64-10, whatever the version of numpy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.rng import UniformStream, raw_numbers
from data_prep.format.pairs import make_pairs
from data_prep.jobs.train_vocabulary import choose
from pipeline.data.rng import Purpose, random_uint64

_MASK = 2**64 - 1


def philox(key: tuple[int, int], counter: int) -> list[int]:
    """One block of the generator, as its paper defines it."""
    words = [counter >> 64 * place & _MASK for place in range(4)]
    first, second = key
    for _ in range(10):
        low, high = 0xD2E7470EE14C6C93 * words[0], 0xCA5A826395121157 * words[2]
        words = [high >> 64 ^ words[1] ^ first, high & _MASK, low >> 64 ^ words[3] ^ second, low & _MASK]
        first, second = first + 0x9E3779B97F4A7C15 & _MASK, second + 0xBB67AE8584CAA73B & _MASK
    return words


def test_the_reference_gives_the_published_vector() -> None:
    """The known answer of the authors' library Random123 for zeros."""
    assert philox((0, 0), 0) == [0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B]


numbers = st.integers(0, _MASK)


@given(numbers, numbers, numbers, numbers, st.integers(0, 13))
def test_raw_numbers(seed: int, purpose: int, epoch: int, index: int, count: int) -> None:
    start = epoch << 128 | index << 192
    expected = [word for block in range(1, 5) for word in philox((seed, purpose), start + block)][:count]
    assert raw_numbers((seed, purpose), (epoch, index), count).tolist() == expected


@given(numbers, numbers, st.lists(st.integers(0, 9), max_size=4))
def test_a_stream_goes_on_where_it_was(seed: int, index: int, counts: list[int]) -> None:
    stream = UniformStream(seed, index)
    taken = [number for count in counts for number in stream.take(count).tolist()]
    words = [word for block in range(1, 11) for word in philox((seed, index), block)]
    assert taken == [(word >> 11) / 2**53 for word in words][: sum(counts)]


def test_nothing_depends_on_what_numpy_may_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """numpy may change the methods of Generator in any version; a job that resumes would then mix streams."""
    monkeypatch.delattr(np.random, "Generator")
    monkeypatch.delattr(np.random, "default_rng")
    assert choose(100, 20, seed=1, unit=2).shape == (20,)
    lengths = np.full(40, 9)
    made = make_pairs(
        lengths, np.array([40]), 0, max_seq_length=64, short_probability=0.1, min_tokens=1, seed=3, begins_word=None
    )
    assert int(made.parts.total().sum()) == 360
    assert len(random_uint64(0, Purpose.MASK, 0, 0, 5)) == 5
