"""What several folders of tests share."""

import argparse
import signal
from pathlib import Path

import pytest
from hypothesis import settings

from data_prep.sources import sample

# A shell's background jobs ignore Ctrl-C, and so would every process that a test starts and then interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples in every run, so that a failure is of the code that changed.
settings.register_profile("project", derandomize=True, deadline=None)
settings.load_profile("project")


@pytest.fixture(scope="session")
def sample_corpus() -> Path:
    """What `python -m data_prep sample` makes, wikipedia/*.bz2 and books/*.txt, fetched once a checkout."""
    directory = Path(__file__).resolve().parent.parent / ".cache" / "sample"
    directory.parent.mkdir(exist_ok=True)
    sample.run(argparse.Namespace(out=directory))
    return directory
