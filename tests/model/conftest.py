"""Silences `transformers` in every test of the model."""

import pytest
import transformers


@pytest.fixture(scope="session", autouse=True)
def _quiet_transformers():
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
