"""Names out of files become paths only where they are one plain component."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import UserError
from common.files.names import is_plain_name, plain_name, referenced_directory

BAD = ["", ".", "..", "../victim", "/etc/passwd", "a/b", "a\\b", "a\0b", "a\nb", "\ud800", "x" * 256, 3, None, ["a"]]


@pytest.mark.parametrize("name", BAD)
def test_other_names_are_refused_in_one_line(name: object) -> None:
    with pytest.raises(UserError, match=r"file\.json names") as refused:
        plain_name(name, "file.json")
    assert "\n" not in str(refused.value)


@given(st.text(max_size=300))
def test_a_plain_name_stays_in_its_directory(name: str) -> None:
    if is_plain_name(name):
        path = Path("/base") / name
        assert path.parent == Path("/base")
        assert path.name == name


@pytest.mark.parametrize("path", ["runs/a", "", "/runs/../a", "/runs//a", "/a\nb", 3, None])
def test_references_are_absolute_paths(path: object) -> None:
    with pytest.raises(UserError, match=r"results\.json refers to"):
        referenced_directory(path, "results.json")
    assert referenced_directory("/runs/a", "results.json") == Path("/runs/a")
