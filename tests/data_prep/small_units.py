"""`python -m data_prep` with small units of work: `python -m tests.data_prep.small_units JOB ...`.

SECONDS_A_UNIT in the environment slows each shard down, so that a test can interrupt the job in the middle.
"""

import os
import sys
import time
from typing import Any

from data_prep import make_shards, units
from data_prep.__main__ import entry

if __name__ == "__main__":
    units.LEAST_BYTES = 30_000
    make_shard = make_shards.make_shard

    def slow(*arguments: Any) -> Any:
        time.sleep(float(os.environ.get("SECONDS_A_UNIT", "0")))
        return make_shard(*arguments)

    make_shards.make_shard = slow
    sys.exit(entry())
