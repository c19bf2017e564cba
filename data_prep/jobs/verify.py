"""Checks every byte of a shard set, or of a directory of documents, against its manifest.

python -m data_prep verify DIR
mpirun -n 8 python -m data_prep verify DIR       (the ranks share the files)
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from common.errors import UserError
from common.files.checksums import FileEntry, file_checksum
from data_prep.corpus import documents
from data_prep.format import shard_manifest
from data_prep.format.shards import read_checked, read_vocabulary
from data_prep.mpi import executor
from data_prep.text.vocabulary import VOCABULARY_FILES

EXPECTED_BESIDE = {shard_manifest.MANIFEST, documents.MANIFEST, "README.md"}
"""Files that a manifest does not list; the last one is a person's."""
MAX_NAMED_PROBLEMS = 5

AnyManifest = shard_manifest.ShardManifest | documents.DocumentsManifest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments of `python -m data_prep verify`."""
    parser.add_argument("directory", type=Path, metavar="DIR", help="directory that `shards` or `extract` wrote")


def run(args: argparse.Namespace) -> None:
    """Checks a directory, and prints that it is complete. UserError: it is damaged; the message names the files."""
    directory: Path = args.directory
    with executor.launch() as ranks:
        manifest = ranks.on_root(lambda: read_manifest(directory))
        files: Sequence[FileEntry] = manifest.files
        sizes = [file.bytes for file in files]
        found_problems = ranks.run(
            files, lambda _, file: problem_of(directory, file, manifest), None, sizes=sizes, description="verify"
        )

        def conclude() -> None:
            problems = [*filter(None, found_problems), *unexpected_files(directory, manifest)]
            if problems:
                more = f"; and {len(problems) - MAX_NAMED_PROBLEMS} more" if len(problems) > MAX_NAMED_PROBLEMS else ""
                job = "shards" if isinstance(manifest, shard_manifest.ShardManifest) else "extract"
                raise UserError(
                    f"{directory} is damaged: {'; '.join(problems[:MAX_NAMED_PROBLEMS])}{more}. "
                    f"Copy it again from an undamaged copy, or delete it and run `{job}` again"
                )
            print(f"verify: {directory} is whole: {len(files)} files, {sum(sizes):,} bytes")

        ranks.on_root(conclude)


def read_manifest(directory: Path) -> AnyManifest:
    """Reads the manifest of a shard set or of documents. UserError: there is neither, or it is damaged."""
    if (directory / documents.MANIFEST).is_file():
        return documents.read_manifest(directory)
    if directory.is_dir() and not (directory / shard_manifest.MANIFEST).is_file():
        names = f"{shard_manifest.MANIFEST} or {documents.MANIFEST}"
        raise UserError(f"{directory} has no {names}; name one that `shards` or `extract` wrote to its end")
    return shard_manifest.read_manifest(directory)


def problem_of(directory: Path, file: FileEntry, manifest: AnyManifest) -> str:
    """Describes what is wrong with one file of the manifest; "" if nothing is."""
    path = directory / file.name
    if not path.is_file():
        return f"{file.name} is missing"
    try:
        checksum = file_checksum(path)
    except OSError as error:  # usually a bad sector
        return f"{file.name} cannot be read ({error.strerror})"
    if checksum != file.xxh3_128:
        return f"the content of {file.name} has changed"
    try:
        if isinstance(file, documents.PartFile):
            with documents.opened_part(path) as part:
                if part.metadata.num_rows != file.documents:
                    return f"{file.name} holds {part.metadata.num_rows} documents instead of {file.documents}"
        elif isinstance(file, shard_manifest.ShardFile) and isinstance(manifest, shard_manifest.ShardManifest):
            if file in manifest.shards():
                read_checked(path, file.rows, manifest)
            elif file.name in VOCABULARY_FILES:
                read_vocabulary(directory, manifest)
    except UserError as error:
        return str(error)
    return ""


def unexpected_files(directory: Path, manifest: AnyManifest) -> list[str]:
    """Returns one line for each file in `directory` that the manifest does not list."""
    known = {file.name for file in manifest.files} | EXPECTED_BESIDE
    return [
        f"{path.name} does not belong to it"
        for path in sorted(directory.iterdir())
        if path.name not in known and not path.name.startswith(".")
    ]
