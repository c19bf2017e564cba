"""The valid inputs, for the tests that run in a process of their own."""

import pytest

from tests.fuzz import inputs


@pytest.fixture(scope="session")
def valid(tmp_path_factory):
    """The directory of all inputs that `inputs.make` makes."""
    root = tmp_path_factory.mktemp("fuzz") / "valid"
    inputs.make_in_child(root)
    return root
