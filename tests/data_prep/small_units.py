"""`python -m data_prep` with small work units: `python -m tests.data_prep.small_units JOB ...`.

SECONDS_A_UNIT in the environment slows each unit down, so that a test can interrupt the job in the middle; to the file
UNIT_LOG each process adds a line with its pid for every unit that it begins.
"""

import os
import sys
import time
from collections.abc import Callable
from typing import Any

from data_prep.__main__ import entry
from data_prep.corpus import work_units
from data_prep.jobs import extract, make_shards, train_vocabulary
from data_prep.sources import wikipedia


def watched(work: Callable[..., Any]) -> Callable[..., Any]:
    """`work`, which logs and delays each work unit."""

    def slow(*arguments: Any) -> Any:
        if log := os.environ.get("UNIT_LOG"):
            with open(log, "a") as file:
                file.write(f"{os.getpid()}\n")
        time.sleep(float(os.environ.get("SECONDS_A_UNIT", "0")))
        return work(*arguments)

    return slow


if __name__ == "__main__":
    work_units.MIN_UNIT_BYTES = 30_000
    wikipedia._BZIP2_RATIO = 200
    make_shards.make_shard = watched(make_shards.make_shard)
    extract.extract_unit = watched(extract.extract_unit)
    train_vocabulary.sentences_of = watched(train_vocabulary.sentences_of)
    sys.exit(entry())
