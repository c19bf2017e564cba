"""Checks every byte of a shard set, or of a directory of documents, against its manifest.

    python -m data_prep verify DIR
    mpirun -n 8 python -m data_prep verify DIR

The ranks share the files.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from common.errors import UserError
from common.files.checksums import FileEntry, problem_of_file
from data_prep.corpus import documents
from data_prep.format import shard_manifest, shards
from data_prep.format.shard_manifest import ShardFile, ShardManifest
from data_prep.mpi import launch

EXPECTED_BESIDE = {shard_manifest.MANIFEST, documents.MANIFEST, "README.md"}  # not listed; the last is a person's

AnyManifest = ShardManifest | documents.DocumentsManifest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments of `python -m data_prep verify`."""
    parser.add_argument("directory", type=Path, metavar="DIR", help="directory that `shards` or `extract` wrote")


def run(args: argparse.Namespace) -> None:
    """Checks a directory, and prints that it is complete. UserError: it is damaged; the message names the files."""
    directory: Path = args.directory
    with launch() as ranks:
        manifest = ranks.on_root(lambda: read_manifest(directory))
        files: Sequence[FileEntry] = manifest.files
        sizes = [file.bytes for file in files]

        def look(_: int, file: FileEntry) -> str:
            return problem_of(directory, file, manifest)

        found_problems = ranks.run(files, look, None, sizes=sizes, description="verify")

        def conclude() -> None:
            problems = [*filter(None, found_problems), *unexpected_files(directory, manifest)]
            if problems:
                job = "shards" if isinstance(manifest, ShardManifest) else "extract"
                fault = f"{directory} is damaged: {'; '.join(problems)}"
                raise UserError(f"{fault}. Copy it again from an undamaged copy, or delete it and run `{job}` again")
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
    if isinstance(file, ShardFile) and isinstance(manifest, ShardManifest):
        return shards.problem_of(directory, file, manifest)
    path = directory / file.name
    if problem := problem_of_file(path, file):
        return problem
    try:
        with documents.opened_part(path) as part:
            if isinstance(file, documents.PartFile) and part.metadata.num_rows != file.documents:
                return f"{file.name} holds {part.metadata.num_rows} documents instead of {file.documents}"
    except UserError as error:
        return str(error)
    return ""


def unexpected_files(directory: Path, manifest: AnyManifest) -> list[str]:
    """Returns one line for each file in `directory` that the manifest does not list."""
    known = {file.name for file in manifest.files} | EXPECTED_BESIDE
    others = sorted({path.name for path in directory.iterdir()} - known)
    return [f"{name} does not belong to it" for name in others if not name.startswith(".")]
