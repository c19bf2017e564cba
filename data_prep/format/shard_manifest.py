"""The manifest of a shard set: its options, counts and files."""

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Interval

from common.files import checksums
from common.files.checksums import FileEntry
from common.files.json_files import Count, Probability
from data_prep.text import ENGLISH
from data_prep.text.vocabulary import VOCABULARY_FILES

FORMAT_VERSION = 2
RULES_VERSION = 8
"""Version of the rules for sentences, tokens, spans, and what is like held-out text. Rows made by others differ."""
MANIFEST, DUPLICATES, OVERLAPS = "manifest.json", "duplicates.jsonl", "overlaps.jsonl"

LISTED = re.compile(rf"shard-\d{{5,}}\.arrow|{'|'.join(map(re.escape, (*VOCABULARY_FILES, DUPLICATES, OVERLAPS)))}")
"""The names of the files that a manifest lists."""

Rows = Annotated[int, Interval(ge=0, lt=2**31)]  # rows of one shard: its offsets are int32
Length = Annotated[int, Interval(ge=0, le=2**16)]
"""Pieces of a vocabulary, or tokens of a row: both are stored as uint16."""


@dataclass(frozen=True)
class ShardFile(FileEntry):
    """One file of a shard set, and its rows (0 if it is not a shard)."""

    rows: Rows = 0


@dataclass
class ShardCounts:
    """Counts over a shard set. What is removed counts in `documents` only."""

    documents: Count = 0  # that were read, including what is left out
    sentences: Count = 0  # of the documents that are not removed
    pairs: Count = 0
    tokens: Count = 0  # in all pairs, without special tokens
    rows: Count = 0
    fill: Probability = 0.0  # fraction of the rows' positions that hold a token, special tokens included
    max_pairs_in_row: Length = 0
    pairs_without_b: Count = 0  # that are a single segment
    documents_left_out: Count = 0  # with fewer than `min_tokens` tokens
    tokens_left_out: Count = 0  # of these
    duplicates_left_out: Count = 0
    similar_left_out: Count = 0  # documents that are similar to held-out ones
    in_tasks_left_out: Count = 0  # by earlier versions: documents that overlap with task files
    unknown_tokens: Count = 0  # tokens that are <unk>
    text_bytes: Count = 0  # of the documents that are not removed, in UTF-8

    @property
    def removed(self) -> int:
        """Documents that no other count includes."""
        return self.duplicates_left_out + self.similar_left_out + self.in_tasks_left_out


@dataclass
class ShardManifest:
    """The content of `manifest.json`. The flags of the job `shards` have their names."""

    vocabulary_sha256: str  # of the vocabulary's file
    vocabulary_size: Length  # its pieces
    normalization: str  # how the text was normalised before it was encoded
    max_seq_length: Length  # positions in a row
    seed: Count
    short_seq_prob: Probability
    min_tokens: Count
    pack: bool
    split: str
    documents_digest: str  # hash of the corpus
    sources: list[dict[str, Any]]  # the directories that the documents came from, with their counts
    counts: ShardCounts
    files: list[ShardFile]  # all but the manifest
    dedup: str = "none"  # method by which duplicates were found
    compared_digest: str = ""  # hash of the documents that were compared for duplicates
    overlaps_digest: str = ""  # hash of the held-out documents to which no document is similar
    language: str = ENGLISH  # codes of the languages of the documents, separated by a comma
    rules_version: Count = RULES_VERSION
    format_version: int = FORMAT_VERSION

    def shards(self) -> list[ShardFile]:
        """Returns the files that contain rows, in order."""
        return [file for file in self.files if file.name.startswith("shard-")]


def shard_name(index: int) -> str:
    """Returns the file name of shard `index`."""
    return f"shard-{index:05d}.arrow"


def describe_file(path: Path, rows: int = 0) -> ShardFile:
    """Returns the manifest's entry of the complete file at `path`."""
    return ShardFile(**asdict(checksums.describe_file(path)), rows=rows)


def write_manifest(directory: Path, manifest: ShardManifest) -> None:
    """Writes `manifest.json`, which completes the shard set."""
    checksums.write_manifest(directory / MANIFEST, manifest, indent=1)


def read_manifest(directory: Path) -> ShardManifest:
    """Reads `manifest.json`. UserError: it is missing, damaged, or of another format version."""
    remedy = "copy it again or make the shards again"
    return checksums.read_manifest(directory / MANIFEST, "shards", ShardManifest, FORMAT_VERSION, LISTED, remedy)
