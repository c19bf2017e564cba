"""The small corpus of the tests of pipeline/, for pages whose commands are run on it."""

from tests.pipeline.conftest import corpus  # noqa: F401
