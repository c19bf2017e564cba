"""Checksums of files and of manifests: xxh3_128, in hexadecimal."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import xxhash

_BLOCK_BYTES = 1 << 23


def file_checksum(path: Path) -> str:
    """Returns the checksum of a file's bytes. Raises OSError if it cannot be read."""
    checksum = xxhash.xxh3_128()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            checksum.update(block)
    return str(checksum.hexdigest())


def content_checksum(content: Mapping[str, Any]) -> str:
    """Returns the checksum of a manifest's content, which must not include the checksum itself."""
    return str(xxhash.xxh3_128_hexdigest(json.dumps(content, sort_keys=True).encode()))
