"""The corpora of a run on the command line: directories with weights, and whether their shards fit together."""

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from common.errors import UserError
from common.files.json_files import check_as
from data_prep.format.shards import VOCABULARY, ShardManifest, ShardSet, open_shards
from pipeline.checkpoint.run_records import CorpusRecord, SourceRecord
from pipeline.data.mixture import names_of


def parse_corpora(arguments: Sequence[str]) -> tuple[tuple[Path, ...], list[Fraction]]:
    """Parses `["wikipedia:3", "books:1"]` into directories and weights; no weights if none is given.

    An existing directory whose name ends in a colon and a number is a directory without a weight.
    """
    directories: list[Path] = []
    weights: list[Fraction] = []
    for argument in arguments:
        name, colon, number = argument.rpartition(":")
        if not colon or Path(argument).is_dir():
            directories.append(Path(argument))
            continue
        try:
            weight = Fraction(number)
        except (ValueError, ZeroDivisionError):
            raise UserError(f"--data {argument}: {number!r} is not a weight; give e.g. {name}:0.5") from None
        if weight <= 0:
            raise UserError(f"--data {argument}: a weight is above 0; leave out a directory that is not wanted")
        directories.append(Path(name))
        weights.append(weight)
    if weights and len(weights) < len(directories):
        raise UserError("--data: some directories have a weight and others do not; give a weight to all or to none")
    if len({directory.resolve() for directory in directories}) < len(directories):
        raise UserError("--data names a directory twice; name it once, with the weight of both")
    return tuple(directories), weights


def describe_corpora(
    directories: Sequence[Path], sets: Sequence[ShardSet], weights: Sequence[int]
) -> tuple[CorpusRecord, ...]:
    """What each corpus was made from, for the records of a run."""
    return tuple(
        CorpusRecord(
            name=name,
            weight=weight,
            documents=shards.manifest.counts.documents,
            tokens=shards.manifest.counts.tokens,
            rows=shards.manifest.counts.rows,
            max_seq_length=shards.manifest.max_seq_length,
            sources=_sources(shards.manifest),
        )
        for name, shards, weight in zip(names_of(directories), sets, weights)
    )


def _sources(manifest: ShardManifest) -> list[SourceRecord]:
    """Where the documents came from; empty for a manifest that lists it in another form."""
    try:
        return check_as(manifest.sources, list[SourceRecord], "", "", extra="ignore")
    except UserError:
        return []


def check_sizes(
    directories: Sequence[Path], sets: Sequence[ShardSet], weights: Sequence[int], train_batch_size: int
) -> None:
    """Raises UserError if the shards have too few rows for one batch."""
    for directory, shards, weight in zip(directories, sets, weights):
        wanted = -(-train_batch_size * weight // sum(weights))
        if len(shards) < wanted:
            part = "one batch" if len(sets) == 1 else "its share of one batch,"
            raise UserError(
                f"{directory} holds {len(shards)} rows, fewer than {part} of {wanted}; "
                f"lower train_batch_size{' or its weight' * (len(sets) > 1)} or add text"
            )


def check_vocabulary_and_length(
    directories: Sequence[Path], sets: Sequence[ShardSet], eval_data: Sequence[Path]
) -> None:
    """Raises UserError unless all shards have one vocabulary and the rows of all corpora one length.

    Held-out rows may be shorter.
    """
    first = sets[0].manifest
    for directory, shards in zip(directories[1:], sets[1:]):
        _check_compatible(first, directories[0], shards.manifest, directory)
        if shards.manifest.max_seq_length != first.max_seq_length:
            raise UserError(
                f"{directory} has rows of {shards.manifest.max_seq_length} tokens, {directories[0]} of "
                f"{first.max_seq_length}; make its shards again with the same --max-seq-length"
            )
    for directory in eval_data:
        _check_compatible(first, directories[0], open_shards(directory).manifest, directory)


def _check_compatible(first: ShardManifest, first_path: Path, second: ShardManifest, second_path: Path) -> None:
    if first.vocabulary_sha256 != second.vocabulary_sha256:
        raise UserError(
            f"{second_path} was made with another vocabulary than {first_path}: {second_path / VOCABULARY} differs "
            f"from {first_path / VOCABULARY}; make its shards again with --vocab {first_path / VOCABULARY}"
        )
    if second.max_seq_length > first.max_seq_length:
        raise UserError(
            f"{second_path} has rows of {second.max_seq_length} tokens, {first_path} of {first.max_seq_length}; "
            f"make its shards again with --max-seq-length {first.max_seq_length}"
        )
