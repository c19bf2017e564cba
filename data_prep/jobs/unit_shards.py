"""The shard of one work unit: its documents, encoded, as pairs, in rows."""

import itertools
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from common.errors import UserError
from common.files.json_files import Count
from data_prep.corpus.fingerprints import Method
from data_prep.corpus.work_units import WorkUnit, read_texts_with_language
from data_prep.format import packing, pairs, shards
from data_prep.format.manifest import ShardCounts, ShardFile
from data_prep.mpi.ledger import UnitRecord
from data_prep.text.encoder import Encoder, without_cyclic_collection
from data_prep.text.sentences import iterate_sentences
from data_prep.text.vocabulary import UNK_ID

MIN_SEQ_LENGTH = 16
MAX_SEQ_LENGTH = 65_535  # lengths are stored as uint16
MAX_SENTENCES_IN_MEMORY = 32_768  # encoded in one call; bounds the memory for Python objects


@dataclass(frozen=True)
class ShardOptions:
    """The options that, with corpus and vocabulary, determine the rows of a shard set; see `add_arguments`."""

    split: str
    max_seq_length: int
    seed: int
    short_seq_prob: float
    min_tokens: int
    pack: bool
    dedup: Method = "none"

    def __post_init__(self) -> None:
        if not MIN_SEQ_LENGTH <= self.max_seq_length <= MAX_SEQ_LENGTH:
            raise UserError(
                f"--max-seq-length is {self.max_seq_length}; "
                f"choose one from {MIN_SEQ_LENGTH} to {MAX_SEQ_LENGTH}, the paper's is 512"
            )
        if not 0 <= self.short_seq_prob <= 1:
            raise UserError(f"--short-seq-prob is {self.short_seq_prob}; choose a probability, the paper's is 0.1")
        if not 0 <= self.seed < 2**63:
            raise UserError(f"--seed is {self.seed}; choose one from 0 to 2**63 - 1")
        if self.min_tokens < 1:
            raise UserError(f"--min-tokens is {self.min_tokens}; choose 1 to keep every document, or more")


@dataclass(frozen=True, kw_only=True)
class ShardRecord(UnitRecord):
    """The shard of one work unit: counts as in `ShardCounts`, and the positions that its rows fill."""

    files: list[ShardFile]
    sentences: Count
    pairs: Count
    tokens: Count
    rows: Count
    positions: Count
    max_pairs_in_row: Count
    pairs_without_b: Count
    documents_left_out: Count
    duplicates_left_out: Count
    tokens_left_out: Count
    unknown_tokens: Count
    text_bytes: Count
    sentences_per_document: list[Count]


def make_shard(
    path: Path, unit: WorkUnit, encoder: Encoder, options: ShardOptions, removed: Collection[int] = ()
) -> ShardRecord:
    """Writes the shard of one work unit. Returns its record.

    Args:
        path: the file to write.
        unit: the documents.
        encoder, options: how to make rows of them.
        removed: documents of the unit to leave out, counted from 0. The others keep their numbers, and so their random
            numbers.
    """
    texts = (
        ("" if number in removed else text, language)
        for number, (text, language) in enumerate(read_texts_with_language(unit))
    )
    tokens, sentence_lengths, sentences_per_document, text_bytes = encode_documents(texts, encoder)
    made = pairs.make_pairs(
        sentence_lengths,
        sentences_per_document,
        unit.first_document,
        max_seq_length=options.max_seq_length,
        short_probability=options.short_seq_prob,
        min_tokens=options.min_tokens,
        seed=options.seed,
        begins_word=~encoder.vocabulary.continues_word[tokens],
    )
    costs = packing.positions(made.parts)
    max_pairs_in_row = packing.max_pairs(options.max_seq_length) if options.pack else 1
    row_of = packing.pack(costs, options.max_seq_length, max_pairs_in_row)
    order = np.argsort(row_of, kind="stable")  # (P,) pairs, row after row; in a row in the order of the text
    lengths = made.parts.total()
    slices = [tokens[first : first + n] for first, n in zip(made.starts[order].tolist(), lengths[order].tolist())]
    kept = np.concatenate(slices) if slices else tokens[:0]
    pairs_per_row = np.bincount(row_of)
    file = shards.write_shard(
        path,
        kept,
        np.bincount(row_of, weights=lengths).astype(np.int64),
        made.parts.take(order),
        made.documents[order],
        pairs_per_row,
    )
    return ShardRecord(
        files=[file],
        documents=unit.documents,
        sentences=len(sentence_lengths),
        pairs=len(made),
        tokens=len(kept),
        rows=len(pairs_per_row),
        positions=int(costs.sum()),
        max_pairs_in_row=int(pairs_per_row.max(initial=0)),
        pairs_without_b=int((made.parts.b == 0).sum()),
        documents_left_out=made.documents_left_out - len(removed),
        duplicates_left_out=len(removed),
        tokens_left_out=made.tokens_left_out,
        unknown_tokens=int((kept == UNK_ID).sum()),
        text_bytes=text_bytes,
        sentences_per_document=np.bincount(np.frexp(np.delete(sentences_per_document, list(removed)))[1]).tolist(),
    )


@without_cyclic_collection()
def encode_documents(
    texts: Iterable[tuple[str, str]], encoder: Encoder
) -> tuple[NDArray[np.uint16], NDArray[np.int64], NDArray[np.int64], int]:
    """Splits documents into sentences, normalises and encodes them.

    Args:
        texts: the text of each document, and the code of its language.
        encoder: of the vocabulary.

    Returns:
        All tokens, uint16; the number of tokens of each sentence, int64; the number of sentences of each document,
        int64; and the size of the documents in bytes of UTF-8.
    """
    tokens: list[NDArray[np.uint16]] = []
    lengths: list[NDArray[np.int64]] = []
    sentences_per_document: list[int] = []
    waiting: list[str] = []
    text_bytes = 0

    def encode_waiting() -> None:
        ids, sizes = encoder.encode(waiting)
        tokens.append(ids)
        lengths.append(sizes)
        waiting.clear()

    for text, language in texts:
        count = 0
        for sentence in iterate_sentences(text, language):
            waiting.append(sentence)
            count += 1
            if len(waiting) >= MAX_SENTENCES_IN_MEMORY:
                encode_waiting()
        sentences_per_document.append(count)
        text_bytes += len(text) if text.isascii() else len(text.encode())
    encode_waiting()
    return (
        np.concatenate(tokens),
        np.concatenate(lengths),
        np.array(sentences_per_document, np.int64),
        text_bytes,
    )


def total_counts(records: list[ShardRecord], max_seq_length: int) -> ShardCounts:
    """Adds up the counts of all units."""
    counts = ShardCounts()
    positions = 0
    for record in records:
        for name in vars(counts).keys() - {"fill", "sentences_per_document", "max_pairs_in_row"}:
            setattr(counts, name, getattr(counts, name) + getattr(record, name))
        counts.max_pairs_in_row = max(counts.max_pairs_in_row, record.max_pairs_in_row)
        positions += record.positions
        bins = itertools.zip_longest(counts.sentences_per_document, record.sentences_per_document, fillvalue=0)
        counts.sentences_per_document = [sum(pair) for pair in bins]
    counts.fill = positions / (counts.rows * max_seq_length) if counts.rows else 0.0
    return counts
