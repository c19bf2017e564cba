"""Manifests and states of a checkpoint that do not fit each other."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from common.files.checksums import content_checksum
from pipeline.checkpoint import files
from pipeline.checkpoint.manifest import MANIFEST, DamagedCheckpoint
from tests.fuzz import inputs


def test_a_tensor_in_a_group_that_the_state_lacks(corpus: SimpleNamespace, tmp_path: Path) -> None:
    inputs.make_run(tmp_path / "run", corpus.vocabulary)
    (tag,) = (tmp_path / "run" / "checkpoints").glob("step-*")
    assert files.verify_share(tag, 0, 1).state["step"] == 1
    record = json.loads((tag / MANIFEST).read_text())
    name = sorted(record["content"]["tensors"])[3]
    record["content"]["tensors"][name]["group"] = 1
    record["xxh3_128"] = content_checksum(record["content"])
    (tag / MANIFEST).write_text(json.dumps(record))
    with pytest.raises(DamagedCheckpoint, match=rf"state\.json: it has 1 parameter groups, and {name} is in another"):
        files.verify_share(tag, 0, 1)
