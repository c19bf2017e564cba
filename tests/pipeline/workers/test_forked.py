"""A forked process writes as one that a launcher starts."""

import os
import sys

from tests.pipeline.workers.forked import Forked


def be_ended_by_another_thread():
    print("error: no room", file=sys.stderr)
    os._exit(2)


def test_a_process_that_ends_at_once_has_said_why(tmp_path):
    process = Forked(tmp_path / "process", be_ended_by_another_thread)
    assert (process.status(), process.stderr) == (2, "error: no room\n")
