"""Values in the records of a run that cannot be are one line with file and key."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from common.errors import UserError
from pipeline.checkpoint.run_records import read_results, read_settings


@pytest.mark.parametrize(
    ("read", "content", "message"),
    [
        (read_settings, {"format": 2, "task": ["rte"]}, r"has task = \['rte'\], which should be a valid string"),
        (read_results, {"task": ["rte"], "metrics": {}}, r"has task = \['rte'\], which should be a valid string"),
        (
            read_results,
            {"task": "rte", "metrics": {"dev": {"f1": 10**400}}},
            r"has metrics\.dev\.f1 = 10+\.\.\.0+, which",
        ),
        (read_results, {"task": "rte"}, "lacks the key metrics"),
    ],
)
def test_a_value_that_cannot_be_is_named(
    tmp_path: Path, read: Callable[[Path], object], content: dict[str, Any], message: str
) -> None:
    path = tmp_path / "record.json"
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=rf"record\.json {message}"):
        read(path)


def test_an_earlier_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text(json.dumps({"task": "rte"}))
    with pytest.raises(UserError, match="has format None, and this program reads 2"):
        read_settings(tmp_path / "settings.json")
