"""Checks a shard set against its manifest: every byte of every file.

python -m data_prep verify DIR
mpirun -n 8 python -m data_prep verify DIR       (the ranks share the files)
"""

import argparse
import hashlib
from pathlib import Path

from data_prep import batch, shards
from data_prep.documents import file_checksum
from data_prep.errors import UserError
from data_prep.ledger import Record

# What other jobs leave beside the shards.
EXPECTED_BESIDE = {shards.MANIFEST, shards.CARD, "stats"}
MOST_NAMED = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments of `python -m data_prep verify`."""
    parser.add_argument("directory", type=Path, metavar="DIR", help="shard set that `shards` wrote")


def run(args: argparse.Namespace) -> None:
    """Prints that the shard set is whole. UserError: what is wrong with which file."""
    directory: Path = args.directory
    with batch.launch() as ranks:
        manifest = ranks.on_root(lambda: shards.read_manifest(directory))
        sizes = [file.bytes for file in manifest.files]
        records = ranks.run(
            manifest.files,
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
                raise UserError(
                    f"{directory} is damaged: {'; '.join(problems[:MOST_NAMED])}{more}. "
                    f"Copy it again from where it is whole, or delete it and run `shards` again"
                )
            print(f"verify: {directory} is whole: {len(manifest.files)} files, {sum(sizes):,} bytes")

        ranks.on_root(conclude)


def _check_file(directory: Path, file: shards.ShardFile, manifest: shards.Manifest) -> Record:
    return {"problem": problem_of(directory, file, manifest)}


def problem_of(directory: Path, file: shards.ShardFile, manifest: shards.Manifest) -> str:
    """What is wrong with one file of the manifest, or ""."""
    path = directory / file.name
    if not path.is_file():
        return f"{file.name} is missing"
    checksum = file_checksum(path)
    if checksum != file.xxh3_128:
        owner = next((other.name for other in manifest.files if other.xxh3_128 == checksum), None)
        if owner is not None:
            return f"{file.name} holds the content of {owner}"
        if (size := path.stat().st_size) != file.bytes:
            return f"{file.name} has {size} bytes instead of {file.bytes}"
        return f"the content of {file.name} has changed"
    if file.name == shards.VOCABULARY:
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        if sha256 != manifest.vocabulary_sha256:
            return f"{file.name} is not the vocabulary that the shards were made with"
    return ""


def unexpected_files(directory: Path, manifest: shards.Manifest) -> list[str]:
    """One line for each file in `directory` that the manifest does not know."""
    known = {file.name for file in manifest.files} | EXPECTED_BESIDE
    return [
        f"{path.name} does not belong to it"
        for path in sorted(directory.iterdir())
        if path.name not in known and not path.name.startswith(".")
    ]
