"""The corpus of the tests of pipeline/."""

from tests.pipeline.conftest import corpus, vocabulary  # noqa: F401
