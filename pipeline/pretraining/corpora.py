"""The training shards of a run: one set, or several with weights; the check of all shards on each host."""

import hashlib
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from common.errors import UserError
from common.files.json_files import check_as
from data_prep.corpus.documents import HELD_OUT, TRAIN
from data_prep.format.shard_manifest import ShardCounts, ShardFile, ShardManifest, read_manifest
from data_prep.format.shards import ShardSet, open_shards, problem_of
from data_prep.text.vocabulary import find_vocabulary
from pipeline.data.mixture import names_of, whole_weights
from pipeline.settings.declare import split_weight
from pipeline.settings.run_settings import CorpusRecord, SourceRecord

if TYPE_CHECKING:  # the preflight uses this file, and torch may not even start there
    from pipeline.distributed.control import ControlGroup

REMEDY = "make the shards again"
READERS = 8  # threads that check files. The checksums are computed without Python's lock.


@dataclass(frozen=True)
class Corpora:
    """The training shards of a run, and the whole numbers that are the weights of a `Mixture`."""

    directories: tuple[Path, ...]
    sets: tuple[ShardSet, ...]
    weights: tuple[int, ...]

    @property
    def manifest(self) -> ShardManifest:
        """Of the first corpus: the others have the same vocabulary and length."""
        return self.sets[0].manifest

    def digests(self) -> tuple[str, ...]:
        """sha256 of each manifest."""
        return tuple(map(digest_of, self.directories))

    def describe(self) -> tuple[CorpusRecord, ...]:
        """What each corpus was made from, for the records of a run."""
        return tuple(
            CorpusRecord(
                name=name,
                weight=weight,
                documents=shards.manifest.counts.documents,
                tokens=shards.manifest.counts.tokens,
                rows=shards.manifest.counts.rows,
                max_seq_length=shards.manifest.max_seq_length,
                language=shards.manifest.language,
                sources=check_as(shards.manifest.sources, tuple[SourceRecord, ...], "manifest.json", REMEDY),
            )
            for name, shards, weight in zip(names_of(self.directories), self.sets, self.weights)
        )

    def steps_after(self, tokens: Sequence[int], train_batch_size: int, shift: int = 0) -> tuple[int, ...]:
        """The steps after which a run has read about so many tokens, without padding. Rows of a set differ little.

        shift: see `Branch`.
        """
        filled = [shards.manifest.counts.fill * shards.manifest.max_seq_length for shards in self.sets]
        of_row = sum(weight * count for weight, count in zip(self.weights, filled)) / sum(self.weights)
        return tuple(sorted({max(1, round((number / of_row - shift) / train_batch_size)) for number in tokens}))

    def check_size(self, train_batch_size: int) -> None:
        """Raises UserError if a corpus has too few rows for its share of one batch."""
        for directory, shards, weight in zip(self.directories, self.sets, self.weights):
            wanted = -(-train_batch_size * weight // sum(self.weights))
            if len(shards) < wanted:
                part = "one batch" if len(self.sets) == 1 else "its share of one batch,"
                raise UserError(
                    f"{directory} holds {len(shards)} rows, fewer than {part} of {wanted}; "
                    f"lower train_batch_size{' or its weight' * (len(self.sets) > 1)} or add text"
                )

    def check_together(self, eval_data: Sequence[Path]) -> None:
        """Raises UserError unless all shards have one vocabulary and the training rows one length.

        Held-out rows may be shorter. Held-out documents must not be trained on, nor training documents evaluated on.
        """
        first, first_directory = self.manifest, self.directories[0]
        trained: dict[object, Path] = {}
        manifests = [(directory, shards.manifest, True) for directory, shards in zip(self.directories, self.sets)]
        manifests += [(directory, open_shards(directory).manifest, False) for directory in eval_data]
        for directory, manifest, is_trained in manifests:
            if manifest.vocabulary_sha256 != first.vocabulary_sha256:
                raise UserError(
                    f"{directory} was made with another vocabulary than {first_directory}: "
                    f"{find_vocabulary(directory)} differs from {find_vocabulary(first_directory)}; make its shards "
                    f"again with --vocab {find_vocabulary(first_directory)}"
                )
            length, wanted = manifest.max_seq_length, first.max_seq_length
            if length > wanted or (is_trained and length < wanted):
                remedy = f"make its shards again with --max-seq-length {wanted}"
                raise UserError(f"{directory} has rows of {length} tokens, {first_directory} of {wanted}; {remedy}")
            if is_trained and manifest.split != TRAIN:
                raise UserError(
                    f"--data {directory} holds {manifest.split.replace('_', '-')} documents; train on shards that "
                    f"data_prep made with --split {TRAIN}"
                )
            # A part is known by the kind, number and bytes of its documents; its directory may have been renamed.
            sources = [
                tuple(value for name, value in source.items() if name != "directory") for source in manifest.sources
            ]
            documents = (manifest.documents_digest, *sources) if manifest.split == TRAIN else ()
            if is_trained:
                trained |= dict.fromkeys(documents, directory)
            elif same := next(filter(None, map(trained.get, documents)), None):
                remedy = f"evaluate on shards that data_prep made with --split {HELD_OUT}"
                raise UserError(f"--eval-data {directory} holds documents of --data {same}; {remedy}")


def digest_of(directory: Path) -> str:
    """sha256 of the manifest of a shard set, which has the checksums of its files."""
    return hashlib.sha256((directory / "manifest.json").read_bytes()).hexdigest()


def open_corpora(words: Sequence[str]) -> Corpora:
    """Opens the shards of --data, such as `["wikipedia:3", "books:1"]`. Without weights each has that of its rows."""
    directories, weights = _parse(words)
    sets = tuple(open_shards(directory) for directory in directories)
    return Corpora(directories, sets, whole_weights(weights or [Fraction(len(shards)) for shards in sets]))


def describe_missing_labels(counts: Sequence[ShardCounts], objective: str) -> str:
    """Why the sentence loss would see only one label or none, and its head learn nothing; "" if it sees both.

    Args:
        counts: of the training shards.
        objective: "sop", "nsp" or "mlm".
    """
    if objective != "mlm" and all(count.pairs == count.pairs_without_b for count in counts):
        return (
            f"no pair has a second segment, so the sentence loss ({objective}) trains nothing; make longer rows, join "
            "sentences (extract --records-per-document), or give --objective mlm"
        )
    # Negative examples of NSP are segments of other documents.
    if objective == "nsp" and all(count.documents - count.documents_left_out - count.removed < 2 for count in counts):
        return "the text is one document, so every label of the sentence loss (nsp) is the same; give --objective sop"
    return ""


def _parse(words: Sequence[str]) -> tuple[tuple[Path, ...], list[Fraction]]:
    """Directories and weights; no weights if none is given."""
    directories: list[Path] = []
    weights: list[Fraction] = []
    for word in words:
        directory, number = split_weight(word)
        directories.append(directory)
        if number:
            try:
                weights.append(Fraction(number))
            except (ValueError, ZeroDivisionError):
                raise UserError(f"--data {word}: {number!r} is not a weight; give e.g. {directory}:0.5") from None
            if weights[-1] <= 0:
                raise UserError(f"--data {word}: a weight is above 0; leave out a directory that is not wanted")
    if weights and len(weights) < len(directories):
        raise UserError("--data: some directories have a weight and others do not; give a weight to all or to none")
    if len({directory.resolve() for directory in directories}) < len(directories):
        raise UserError("--data names a directory twice; name it once, with the weight of both")
    return tuple(directories), weights


def check_on_hosts(directories: Sequence[Path], control: "ControlGroup", is_first: bool) -> None:
    """Checks every byte of the shard sets on each host, whose first rank does the work. Collective.

    Rows are read in random order, so over the epochs every host reads every file. A set that fits in memory is read
    from there after the check, and not from the network. UserError, on all ranks: a file has changed.
    """

    def check() -> None:
        for directory in directories if is_first else ():
            _check_set(directory)

    control.all_or_raise(check)


def _check_set(directory: Path) -> None:
    manifest = read_manifest(directory)

    def check(file: ShardFile) -> None:
        if problem := problem_of(directory, file, manifest):
            remedy = f"run `python -m data_prep verify {directory}` there for the whole list"
            raise UserError(f"{directory} on host {socket.gethostname()} is damaged: {problem}; {remedy}")

    with ThreadPoolExecutor(READERS) as pool:
        list(pool.map(check, manifest.files))
