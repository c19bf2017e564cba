"""Values in the records of a run that cannot be are one line with file and key."""

import json
from pathlib import Path
from typing import Any

import pytest

from common.errors import UserError
from pipeline.checkpoint.run_records import read_record
from tests.pipeline.records import finetune_record, write


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": ["rte"]}, r"has task = \['rte'\], which should be a valid string"),
        ({"world_size": 0}, "has world_size = 0"),
        ({"more": 1}, "has the unknown key more"),
        ({"model": {"hidden_size": 7}}, "model: "),
        ({"format": 1}, "has format 1"),
    ],
)
def test_settings_that_cannot_be_are_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = write(tmp_path, finetune_record())
    assert read_record(tmp_path) == finetune_record()
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(UserError, match=rf"settings\.json:? .*{message}"):
        read_record(tmp_path)
