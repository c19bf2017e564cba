"""A cluster of two hosts, and the run that others are compared with, for all tests of this folder."""

import os
import sys

import pytest

from tests.cluster.hosts import Cluster, what_is_missing
from tests.pipeline.conftest import corpus, made_once, run  # noqa: F401
from tests.pipeline.test_pretrain import command, config  # noqa: F401

STEPS = 40


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """`Cluster` with node1 and node2."""
    if reason := what_is_missing():
        # .ci/run installs what hosts need, so there a missing part is a failure.
        (pytest.fail if os.environ.get("REQUIRE_HOSTS") else pytest.skip)(reason)
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        for name in ("node1", "node2"):
            cluster.start(name)
        yield cluster
    finally:
        cluster.end()


@pytest.fixture(scope="session")
def alone(corpus, config, tmp_path_factory):  # noqa: F811
    """The run of one process, in fp32."""

    def make(output):
        words = command(corpus, config, output, "--precision", "fp32", "--steps", STEPS, "--log-interval", 1)
        run(sys.executable, "-m", *words)

    return made_once(tmp_path_factory, "alone", make)
