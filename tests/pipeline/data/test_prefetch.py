"""Batches made ahead: order, errors, and the end of the thread."""

import threading
import time

import pytest

from pipeline.data.prefetch import prefetch


def test_items_come_in_order():
    assert list(prefetch(iter(range(100)), depth=3)) == list(range(100))


def test_an_error_is_raised_where_the_item_was_wanted():
    def items():
        yield 1
        raise KeyError("broken shard")

    ahead = prefetch(items())
    assert next(ahead) == 1
    with pytest.raises(KeyError, match="broken shard"):
        next(ahead)


def test_the_thread_stays_only_so_far_ahead_and_ends_with_the_iterator():
    made = []

    def items():
        for number in range(10**6):
            made.append(number)
            yield number

    ahead = prefetch(items(), depth=2)
    assert next(ahead) == 0
    deadline = time.monotonic() + 100
    while len(made) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(made) == 4  # one taken, two ready, one in hand
    ahead.close()
    deadline = time.monotonic() + 100
    while any(thread.name == "batches" for thread in threading.enumerate()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(thread.name == "batches" for thread in threading.enumerate())
