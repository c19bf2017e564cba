"""What this host remembers of the shards that it has checked: then the next start need not read them (--verify once).

For each shard the cache directory has a record: what the file was like (size, times, inode, checksum of the manifest),
and the checksums of its rows, with which training compares every row that it reads. A file that was written again has
another time or inode, and is checked again. A file whose disk changes it silently is found when its rows are read.
"""

import contextlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import xxhash
from numpy.typing import NDArray

from common.errors import UserError
from common.files import atomic
from common.files.json_files import read_as
from common.files.storage import cache_directory
from data_prep.format.manifest import ShardFile
from data_prep.format.shards import BLOCK_ROWS


@dataclass(frozen=True)
class Identity:
    """What a file is like while nobody writes to it: `os.stat` and the checksum that its manifest gives."""

    bytes: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    device: int
    xxh3_128: str

    @classmethod
    def of(cls, path: Path, file: ShardFile) -> "Identity":
        """Raises OSError if there is no such file."""
        found = path.stat()
        return cls(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev, file.xxh3_128)


@dataclass(frozen=True)
class _Record:
    """The content of a record. `blocks`: uint32 `block_checksums` in hexadecimal."""

    path: str
    identity: Identity
    blocks: str


def recall(path: Path, file: ShardFile) -> NDArray[np.uint32] | None:
    """Returns the `block_checksums` of a file that has not changed since it was checked; None if that is not known."""
    try:
        record = read_as(_place(path), _Record, "remove it")
        blocks = np.frombuffer(bytes.fromhex(record.blocks), np.uint32)
        is_as_it_was = record.identity == Identity.of(path, file) and len(blocks) == -(-file.rows // BLOCK_ROWS)
        return blocks if is_as_it_was else None
    except (OSError, UserError, ValueError):
        return None


def remember(path: Path, identity: Identity, blocks: NDArray[np.uint32]) -> None:
    """Records that a file was found whole, and what it was like before. Without a cache it does nothing."""
    record = _Record(str(path.absolute()), identity, blocks.tobytes().hex())
    with contextlib.suppress(OSError, UserError):
        _place(path).parent.mkdir(parents=True, exist_ok=True)
        atomic.write_text(_place(path), json.dumps(asdict(record)))


def _place(path: Path) -> Path:
    return cache_directory() / "checked" / f"{xxhash.xxh3_128_hexdigest(os.fsencode(path.absolute()))}.json"
