"""`python -m data_prep` with small work units: `python -m tests.data_prep.small_units JOB ...`.

SECONDS_A_UNIT in the environment slows each unit down, so that a test can interrupt the job in the middle; to the file
UNIT_LOG each process adds a line with its pid for every unit that it begins.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from data_prep.__main__ import entry
from data_prep.corpus import work_units
from data_prep.jobs import extract, make_shards, train_vocabulary
from data_prep.sources import wikipedia
from data_prep.text.normalize import Normalization


def begin_unit() -> None:
    """Logs and delays a work unit."""
    if log := os.environ.get("UNIT_LOG"):
        with open(log, "a") as file:
            file.write(f"{os.getpid()}\n")
    time.sleep(float(os.environ.get("SECONDS_A_UNIT", "0")))


def watched(work: Callable[..., Any]) -> Callable[..., Any]:
    """`work`, after `begin_unit`."""

    def slow(*arguments: Any) -> Any:
        begin_unit()
        return work(*arguments)

    return slow


def watched_sentences(unit: work_units.WorkUnit, *normalization: Normalization) -> Iterator[str]:
    """`train_vocabulary.sentences_of`, after `begin_unit`."""
    begin_unit()
    yield from sentences_of(unit, *normalization)


if __name__ == "__main__":
    work_units.MIN_UNIT_BYTES = 30_000
    wikipedia._BZIP2_RATIO = 200
    make_shards.make_shard = watched(make_shards.make_shard)
    extract.extract_unit = watched(extract.extract_unit)
    sentences_of = train_vocabulary.sentences_of
    train_vocabulary.sentences_of = watched_sentences
    sys.exit(entry())
