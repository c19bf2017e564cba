"""Batches made ahead: order, errors, and the end of the thread."""

import threading
import time

import pytest

from pipeline.data.prefetch import prefetch
from tests.data_prep import corpora


def test_items_come_in_order_and_an_error_is_raised_where_the_item_was_wanted():
    def items():
        yield from range(100)
        raise KeyError("broken shard")

    ahead = prefetch(items(), depth=3)
    assert [next(ahead) for _ in range(100)] == list(range(100))
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
    corpora.wait_until(lambda: len(made) == 3)  # one taken, two ahead
    time.sleep(0.1)
    assert len(made) == 3
    ahead.close()
    corpora.wait_until(lambda: not any(thread.name.startswith("batches") for thread in threading.enumerate()))
