"""Manifests that name files elsewhere are refused."""

import json
from pathlib import Path

import pytest

from common.errors import UserError
from common.files.checksums import content_checksum
from data_prep.corpus import documents
from data_prep.format import shard_manifest as manifests


@pytest.mark.parametrize(
    ("name", "message"),
    [
        *((path, f"names '{path}', which is no file name that belongs there") for path in ("../victim", "README.md")),
        (3, r"has files\.0\.name = 3, which should be a valid string"),
    ],
)
def test_manifests_that_name_other_files_are_refused(
    shard_directory: Path, documents_directory: Path, tmp_path: Path, name: object, message: str
) -> None:
    for source, manifest, read in (
        (shard_directory, manifests.MANIFEST, manifests.read_manifest),
        (documents_directory, documents.MANIFEST, documents.read_manifest),
    ):
        directory = tmp_path / source.name
        directory.mkdir()
        content = json.loads((source / manifest).read_text())
        content.pop("xxh3_128")
        content["files"][0]["name"] = name
        (directory / manifest).write_text(json.dumps(content | {"xxh3_128": content_checksum(content)}))
        with pytest.raises(UserError, match=message):
            read(directory)
