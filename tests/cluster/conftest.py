"""Two hosts on a switch, for all tests of this folder."""

import pytest

from tests.cluster.hosts import Cluster, what_is_missing
from tests.pipeline.conftest import corpus  # noqa: F401


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """`Cluster` with node1 and node2."""
    if reason := what_is_missing():
        pytest.skip(reason)
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        for name in ("node1", "node2"):
            cluster.start(name)
        yield cluster
    finally:
        cluster.end()
