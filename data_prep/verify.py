"""Checks a shard set, or a directory of documents, against its manifest: every byte of every file.

python -m data_prep verify DIR
mpirun -n 8 python -m data_prep verify DIR       (the ranks share the files)
"""

import argparse
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from data_prep import batch, documents, shards
from data_prep.errors import UserError
from data_prep.ledger import Record

# What other jobs leave beside the shards.
EXPECTED_BESIDE = {shards.MANIFEST, shards.CARD, documents.MANIFEST, "stats"}
MOST_NAMED = 5

Manifest = shards.Manifest | documents.DocumentsManifest


class ListedFile(Protocol):
    """A file as a manifest lists it: `shards.ShardFile` or `documents.PartFile`."""

    @property
    def name(self) -> str: ...
    @property
    def bytes(self) -> int: ...
    @property
    def xxh3_128(self) -> str: ...


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments of `python -m data_prep verify`."""
    parser.add_argument("directory", type=Path, metavar="DIR", help="what `shards` or `extract` wrote")


def run(args: argparse.Namespace) -> None:
    """Prints that a directory is whole. UserError: what is wrong with which file."""
    directory: Path = args.directory
    with batch.launch() as ranks:
        manifest = ranks.on_root(lambda: read_manifest(directory))
        files: Sequence[ListedFile] = manifest.files
        sizes = [file.bytes for file in files]
        records = ranks.run(
            files,
            lambda _, file: _check_file(directory, file, manifest),
            None,
            sizes=sizes,
            description="verify",
        )

        def conclude() -> None:
            problems = [record["problem"] for record in records if record["problem"]]
            problems += unexpected_files(directory, manifest)
            if problems:
                more = f"; and {len(problems) - MOST_NAMED} more" if len(problems) > MOST_NAMED else ""
                job = "shards" if isinstance(manifest, shards.Manifest) else "extract"
                raise UserError(
                    f"{directory} is damaged: {'; '.join(problems[:MOST_NAMED])}{more}. "
                    f"Copy it again from where it is whole, or delete it and run `{job}` again"
                )
            print(f"verify: {directory} is whole: {len(files)} files, {sum(sizes):,} bytes")

        ranks.on_root(conclude)


def read_manifest(directory: Path) -> Manifest:
    """The manifest of a shard set or of documents, whichever lies there. UserError: neither, or a damaged one."""
    has_shards, has_documents = ((directory / name).is_file() for name in (shards.MANIFEST, documents.MANIFEST))
    if has_documents and not has_shards:
        return documents.read_manifest(directory)
    if directory.is_dir() and not has_shards:
        unfinished = (directory / ".units").exists()
        remedy = "run the same command again to finish it" if unfinished else "name what `shards` or `extract` wrote"
        raise UserError(f"{directory} has neither {shards.MANIFEST} nor {documents.MANIFEST}; {remedy}")
    return shards.read_manifest(directory)


def _check_file(directory: Path, file: ListedFile, manifest: Manifest) -> Record:
    return {"problem": problem_of(directory, file, manifest)}


def problem_of(directory: Path, file: ListedFile, manifest: Manifest) -> str:
    """What is wrong with one file of the manifest, or ""."""
    path = directory / file.name
    if not path.is_file():
        return f"{file.name} is missing"
    try:
        checksum = documents.file_checksum(path)
    except OSError as error:  # a bad sector, as a rule
        return f"{file.name} cannot be read ({error.strerror})"
    files: Sequence[ListedFile] = manifest.files
    if checksum != file.xxh3_128:
        owner = next((other.name for other in files if other.xxh3_128 == checksum), None)
        if owner is not None:
            return f"{file.name} holds the content of {owner}"
        if (size := path.stat().st_size) != file.bytes:
            return f"{file.name} has {size} bytes instead of {file.bytes}"
        return f"the content of {file.name} has changed"
    if isinstance(manifest, shards.Manifest) and file.name == shards.VOCABULARY:
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        if sha256 != manifest.vocabulary_sha256:
            return f"{file.name} is not the vocabulary that the shards were made with"
    return ""


def unexpected_files(directory: Path, manifest: Manifest) -> list[str]:
    """One line for each file in `directory` that the manifest does not know."""
    known = {file.name for file in manifest.files} | EXPECTED_BESIDE
    return [
        f"{path.name} does not belong to it"
        for path in sorted(directory.iterdir())
        if path.name not in known and not path.name.startswith(".")
    ]
