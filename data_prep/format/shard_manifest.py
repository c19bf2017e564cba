"""The manifest of a shard set: its options, counts and files."""

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Interval

from common.files import checksums
from common.files.atomic import write_text
from common.files.checksums import FileEntry, content_checksum
from common.files.json_files import Count, Probability
from data_prep.text import ENGLISH
from data_prep.text.vocabulary import VOCABULARY_FILES

FORMAT_VERSION = 2
RULES_VERSION = 5
"""Version of the rules that split text into sentences and documents into spans. Rows made by others differ."""
MANIFEST, DUPLICATES, OVERLAPS = "manifest.json", "duplicates.jsonl", "overlaps.jsonl"

LISTED = re.compile(rf"shard-\d{{5,}}\.arrow|{'|'.join(map(re.escape, (*VOCABULARY_FILES, DUPLICATES, OVERLAPS)))}")
"""The names of the files that a manifest lists."""

Rows = Annotated[int, Interval(ge=0, lt=2**31)]
"""Rows of one shard: its offsets are int32."""
Length = Annotated[int, Interval(ge=0, le=2**16)]
"""Pieces of a vocabulary, or tokens of a row: both are stored as uint16."""


@dataclass(frozen=True)
class ShardFile(FileEntry):
    """One file of a shard set, and its rows (0 if it is not a shard)."""

    rows: Rows = 0


@dataclass
class ShardCounts:
    """Counts over a shard set.

    Attributes:
        documents, sentences: what was read, including what is left out.
        pairs, pairs_without_b: segment pairs, and those of them that are a single segment.
        tokens, unknown_tokens: tokens in all pairs without special tokens, and those of them that are <unk>.
        rows, max_pairs_in_row: rows, and the largest number of pairs in one.
        fill: fraction of the rows' positions that hold a token, special tokens included.
        documents_left_out, tokens_left_out: documents with fewer than `min_tokens` tokens, and their tokens.
        duplicates_left_out, similar_left_out: duplicates, and documents that are similar to held-out ones; no other
            count but `documents` includes them.
        in_tasks_left_out: the same of earlier versions, for documents that overlap with task files.
        text_bytes: size of the documents in UTF-8.
    """

    documents: Count = 0
    sentences: Count = 0
    pairs: Count = 0
    tokens: Count = 0
    rows: Count = 0
    fill: Probability = 0.0
    max_pairs_in_row: Length = 0
    pairs_without_b: Count = 0
    documents_left_out: Count = 0
    tokens_left_out: Count = 0
    duplicates_left_out: Count = 0
    similar_left_out: Count = 0
    in_tasks_left_out: Count = 0
    unknown_tokens: Count = 0
    text_bytes: Count = 0

    @property
    def removed(self) -> int:
        """Documents that no other count includes."""
        return self.duplicates_left_out + self.similar_left_out + self.in_tasks_left_out


@dataclass
class ShardManifest:
    """The content of `manifest.json`.

    Attributes:
        vocabulary_sha256, vocabulary_size: hash and number of pieces of the vocabulary's file.
        normalization: how the text was normalised before it was encoded.
        max_seq_length: positions in a row.
        seed, short_seq_prob, min_tokens, pack, split: the options of the job.
        documents_digest: hash of the corpus.
        sources: the directories that the documents came from, with their counts.
        files: all files but the manifest.
        dedup: method by which duplicates were found.
        compared_digest: hash of the documents that were compared for duplicates.
        overlaps_digest: hash of the held-out documents to which no document is similar.
        language: codes of the languages of the documents, separated by a comma.
        rules_version: version of the rules that made the rows.
    """

    vocabulary_sha256: str
    vocabulary_size: Length
    normalization: str
    max_seq_length: Length
    seed: Count
    short_seq_prob: Probability
    min_tokens: Count
    pack: bool
    split: str
    documents_digest: str
    sources: list[dict[str, Any]]
    counts: ShardCounts
    files: list[ShardFile]
    dedup: str = "none"
    compared_digest: str = ""
    overlaps_digest: str = ""
    language: str = ENGLISH
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
    content = asdict(manifest)
    content["xxh3_128"] = content_checksum(content)
    write_text(directory / MANIFEST, json.dumps(content, indent=1) + "\n")


def read_manifest(directory: Path) -> ShardManifest:
    """Reads `manifest.json`.

    Raises:
        UserError: `directory` is not a complete shard set, or the manifest is damaged or of another version.
    """
    remedy = "copy it again or make the shards again"
    return checksums.read_manifest(directory / MANIFEST, "shards", ShardManifest, FORMAT_VERSION, LISTED, remedy)
