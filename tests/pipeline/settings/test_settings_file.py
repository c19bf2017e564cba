"""Values in the records of a run that cannot be are one line with file and key."""

import json
from pathlib import Path
from typing import Any

import pytest

from common.errors import UserError
from pipeline.settings.settings_file import read_settings
from tests.pipeline.records import finetune_settings, write


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": ["rte"]}, r"has task = \['rte'\], which should be a valid string"),
        ({"steps": 0}, "has steps = 0"),
        ({"engine": {}}, r"lacks the key engine\.json"),
        ({"more": 1}, "has the unknown key more"),
        ({"model": {"hidden_size": 7}}, "has model = "),
        ({"format": 1}, "has format 1, and this program reads 4 to 5"),
        ({"format": 4}, r"is no settings\.json of format 4"),
    ],
)
def test_settings_that_cannot_be_are_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = write(tmp_path, finetune_settings())
    assert read_settings(tmp_path) == finetune_settings()
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(UserError, match=rf"settings\.json:? .*{message}"):
        read_settings(tmp_path)
