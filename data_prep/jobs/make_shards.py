"""Makes shards of documents, one shard for each work unit.

    python -m data_prep shards --documents DIR... --vocab FILE --out DIR [--max-seq-length 512] [--dedup near]
    mpirun -n 8 python -m data_prep shards ...

The ranks share the work units.
"""

import argparse
import gc
import hashlib
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from common.command_line import bounded, natural, positive
from common.errors import UserError
from common.files import atomic
from common.files.json_files import Count
from common.files.locks import LOCK
from data_prep.corpus import dedup, overlaps
from data_prep.corpus.documents import SPLITS, TRAIN
from data_prep.corpus.work_units import Corpus, WorkUnit, open_corpus, read_column, read_texts_with_language
from data_prep.format import pairs, shards
from data_prep.format import shard_manifest as manifests
from data_prep.format.shard_manifest import ShardCounts, ShardFile, ShardManifest
from data_prep.mpi import UNITS, Ledger, Ranks, UnitRecord, begin_job, check_same, end_job, launch, run_job
from data_prep.text import language_code
from data_prep.text.load_vocabulary import load_vocabulary
from data_prep.text.sentences import iterate_sentences
from data_prep.text.text_encoder import Encoder
from data_prep.text.vocabulary import UNK_ID, Vocabulary

MAX_SENTENCES_IN_MEMORY = 32_768  # encoded in one call; bounds the memory for Python objects

seq_length = bounded(int, "whole number", lambda n: 16 <= n <= 65_535, "from 16 to 65535; the paper's is 512")
"""Positions in a row, as a type for argparse: lengths are stored as uint16."""
probability = bounded(float, "probability", lambda p: 0 <= p <= 1, "a probability; the paper's is 0.1")


@dataclass(frozen=True, kw_only=True)
class ShardRecord(UnitRecord):
    """The shard of one work unit."""

    files: list[ShardFile]
    counts: ShardCounts  # without `fill`
    positions: Count  # that its rows fill
    similar: list[tuple[int, int]]  # (document, held-out document) of those that `overlaps` leaves out


class JobPlan(NamedTuple):
    """What a run of this job has to do."""

    manifest: ShardManifest  # without counts and files: the options that determine the rows
    vocabulary: Vocabulary
    corpus: Corpus  # the documents that become rows
    comparison: dedup.Comparison | None  # documents to compare for duplicates; None without --dedup
    held_out: Corpus | None  # of earlier splits: what no document may be similar to; None if there is nothing


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags of `python -m data_prep shards`."""
    flag = parser.add_argument
    flag("--documents", type=Path, nargs="+", required=True, metavar="DIR", help="directories that `extract` wrote")
    flag("--vocab", type=Path, required=True, metavar="FILE", help="of `vocab`, or vocabulary or directory of a model")
    flag("--out", type=Path, required=True, metavar="DIR", help="directory to write the shards to")
    flag("--language", type=language_code, metavar="CODE", help="of the documents (default: as `extract` recorded)")
    flag("--split", choices=SPLITS, default=TRAIN, help="split of the documents (default: %(default)s)")
    flag("--max-seq-length", type=seq_length, default=512, metavar="N", help="positions in a row (default: 512)")
    flag("--seed", type=natural, default=0, metavar="N", help="seed of the cuts (default: %(default)s)")
    flag("--short-seq-prob", type=probability, default=0.1, metavar="P", help="share of shorter pairs (default: 0.1)")
    flag("--min-tokens", type=positive, default=16, metavar="N", help="least in a document (default: %(default)s)")
    flag("--no-pack", dest="pack", action="store_false", help="one pair in each row, as in the paper, not full rows")
    flag("--dedup", choices=("exact", "near", "none"), default="none", help="leave out duplicates (default: none)")
    flag("--against", type=Path, nargs="+", default=[], metavar="DIR", help="leave out duplicates of these, too")
    flag("--keep-similar", action="store_true", help="keep documents that are similar to held-out ones")
    flag("--held-out-of", type=Path, nargs="+", default=[], metavar="DIR", help="other documents held out for this run")


def run(args: argparse.Namespace) -> None:
    """Makes the shard set `args.out`, continues an unfinished one, or recognises a complete one."""
    with launch() as ranks:
        plan = ranks.on_root(lambda: plan_job(args))
        work = partial(_make, ranks, args.out, plan)
        run_job(ranks, args.out, args.out / LOCK, lambda: _is_complete(args.out, plan), work)


def _make(ranks: Ranks, out: Path, plan: JobPlan) -> None:
    scratch, comparison, duplicates = out / UNITS, plan.comparison, dedup.NO_DUPLICATES

    def begin() -> None:
        begin_job(out, _identity(plan.manifest))
        if plan.held_out is not None:
            texts = (text for unit in plan.held_out.units for text in read_column(unit, "text"))
            overlaps.Index.of(texts).save(scratch / "held_out")

    ranks.on_root(begin)
    index_of_held_out = None if plan.held_out is None else overlaps.Index.mapped(scratch / "held_out")
    if comparison is not None:
        duplicates = dedup.find(ranks, comparison, scratch)
    encoder = Encoder(plan.vocabulary)

    def work(index: int, unit: WorkUnit) -> ShardRecord:
        texts = list(read_texts_with_language(unit))
        similar = overlaps.most_similar(index_of_held_out, (text for text, _ in texts)) if index_of_held_out else {}
        first = unit.first_document + (comparison.start if comparison is not None else 0)
        removed = duplicates.between(first, first + unit.documents) - first
        path = out / manifests.shard_name(index)
        return make_shard(path, unit, texts, encoder, plan.manifest, similar, removed.tolist())

    units, ledger = plan.corpus.units, Ledger(out, ShardRecord, scratch)
    records = ranks.run(units, work, ledger, sizes=[unit.text_bytes for unit in units], description="shards")

    def conclude() -> None:
        counts = plan.manifest.counts = total_counts(records, plan.manifest.max_seq_length)
        files = [file for record in records for file in record.files]
        if not counts.rows:
            end_job(out, files)
            remedy = "lower --min-tokens or " if counts.documents_left_out else ""
            raise UserError(
                f"of {counts.documents:,} documents {counts.documents_left_out:,} have fewer than "
                f"{plan.manifest.min_tokens} tokens and {counts.removed:,} are duplicates or similar to held-out ones, "
                f"so there are no rows; {remedy}add text"
            )
        finish(out, plan, files, duplicates, dict(pair for record in records for pair in record.similar))

    ranks.on_root(conclude)


def plan_job(args: argparse.Namespace) -> JobPlan:
    """Checks the arguments and returns what to do."""
    if args.against and args.dedup == "none":
        raise UserError("--against names documents to compare with, and --dedup is none; add --dedup near, or exact")
    vocabulary = load_vocabulary(args.vocab)
    corpus = open_corpus(args.documents, args.split, args.language)
    if (count := sum(unit.documents for unit in corpus.units)) > shards.MAX_DOCUMENTS:
        raise UserError(f"--documents hold {count:,} documents, and at most {shards.MAX_DOCUMENTS:,} can be numbered")
    comparison = None
    if args.dedup != "none":
        comparison = dedup.compare(args.documents, args.split, corpus, args.against, args.dedup)
    earlier = () if args.keep_similar else SPLITS[: SPLITS.index(args.split)]
    if args.held_out_of and not earlier:
        raise UserError("--held-out-of keeps other splits clean; leave it out with --keep-similar or --split held_out")
    apart = [dedup.open_split([*args.documents, *args.held_out_of], split) for split in earlier]
    held_out = Corpus([unit for of_split in apart for unit in of_split.units], [], "")
    digests = " ".join(of_split.digest or "0" for of_split in apart)  # without validation as earlier versions wrote it
    overlaps_digest = hashlib.sha256(f"1 {digests}\n".encode()).hexdigest() if held_out.units else ""
    flags = ("split", "max_seq_length", "seed", "short_seq_prob", "min_tokens", "pack", "dedup")
    manifest = ShardManifest(
        **{flag: getattr(args, flag) for flag in flags},
        vocabulary_sha256=vocabulary.sha256,
        vocabulary_size=len(vocabulary),
        normalization=vocabulary.normalization.description,
        documents_digest=corpus.digest,
        language=corpus.language,
        rules_version=manifests.RULES_VERSION,
        sources=corpus.sources,
        compared_digest=comparison.digest if comparison else "",
        overlaps_digest=overlaps_digest,
        counts=ShardCounts(),
        files=[],
    )
    return JobPlan(manifest, vocabulary, corpus, comparison, held_out if held_out.units else None)


def _identity(manifest: ShardManifest) -> dict[str, Any]:
    """Everything that determines the rows."""
    content = asdict(manifest)
    for name in ("vocabulary_size", "sources", "counts", "files"):
        del content[name]
    return content


def _is_complete(out: Path, plan: JobPlan) -> bool:
    """Whether `out` holds the shards of `plan`. UserError: it holds shards of other options."""
    if not (out / manifests.MANIFEST).exists():
        return False
    check_same(out, "shards of other options", _identity(shards.open_shards(out).manifest), _identity(plan.manifest))
    return True


def make_shard(
    path: Path,
    unit: WorkUnit,
    texts: Sequence[tuple[str, str]],
    encoder: Encoder,
    options: ShardManifest,
    similar: Mapping[int, int],
    duplicates: Sequence[int],
) -> ShardRecord:
    """Writes the shard of one work unit, whose documents have `texts` (text, language), to `path`. Returns its record.

    similar, duplicates: documents to leave out, counted from the unit's first one. The others keep their numbers, and
    so their random numbers.
    """
    removed = dict.fromkeys(similar, "similar_left_out") | dict.fromkeys(duplicates, "duplicates_left_out")
    kept_texts = (("" if number in removed else text, language) for number, (text, language) in enumerate(texts))
    tokens, sentence_lengths, sentences_per_document, text_bytes = encode_documents(kept_texts, encoder)
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
    costs = made.parts.positions()
    max_pairs_in_row = pairs.max_pairs(options.max_seq_length) if options.pack else 1
    row_of = pairs.pack(costs, options.max_seq_length, max_pairs_in_row)
    order = np.argsort(row_of, kind="stable")  # (P,) pairs, row after row; in a row in the order of the text
    lengths = made.parts.total()
    slices = [tokens[first : first + n] for first, n in zip(made.starts[order].tolist(), lengths[order].tolist())]
    kept = np.concatenate(slices) if slices else tokens[:0]
    pairs_per_row = np.bincount(row_of)
    rows = shards.ShardRows(kept, made.parts.take(order), made.documents[order], pairs_per_row)
    file = shards.write_shard(path, rows)
    counts = ShardCounts(
        documents=unit.documents,
        sentences=len(sentence_lengths),
        pairs=len(made),
        tokens=len(kept),
        rows=len(pairs_per_row),
        max_pairs_in_row=int(pairs_per_row.max(initial=0)),
        pairs_without_b=int((made.parts.b == 0).sum()),
        documents_left_out=made.documents_left_out - len(removed),
        **Counter(removed.values()),
        tokens_left_out=made.tokens_left_out,
        unknown_tokens=int((kept == UNK_ID).sum()),
        text_bytes=text_bytes,
    )
    numbered = [(unit.first_document + document, owner) for document, owner in similar.items()]
    return ShardRecord(files=[file], counts=counts, positions=int(costs.sum()), similar=numbered)


def encode_documents(
    texts: Iterable[tuple[str, str]], encoder: Encoder
) -> tuple[NDArray[np.uint16], NDArray[np.int64], NDArray[np.int64], int]:
    """Splits documents, given as (text, code of its language), into sentences, normalises and encodes them.

    Returns all tokens, uint16; the tokens of each sentence, int64; the sentences of each document, int64; and the size
    of the documents in bytes of UTF-8.
    """
    sentences_per_document: list[int] = []
    text_bytes = 0

    def sentences() -> Iterator[str]:
        nonlocal text_bytes
        for text, language in texts:
            text_bytes += len(text) if text.isascii() else len(text.encode())
            sentences_per_document.append(0)
            of_document = iterate_sentences(text, language)
            while group := list(itertools.islice(of_document, 1024)):  # not one by one, which takes longer
                sentences_per_document[-1] += len(group)
                yield from group

    waiting = sentences()
    groups = iter(lambda: list(itertools.islice(waiting, MAX_SENTENCES_IN_MEMORY)), [])
    gc.disable()  # SentencePiece returns many lists, none in a cycle; looking for cycles takes a seventh of the time
    try:
        tokens, lengths = zip(encoder.encode([]), *map(encoder.encode, groups))
    finally:
        gc.enable()
    return np.concatenate(tokens), np.concatenate(lengths), np.array(sentences_per_document, np.int64), text_bytes


def total_counts(records: list[ShardRecord], max_seq_length: int) -> ShardCounts:
    """Adds up the counts of all units."""
    total = ShardCounts()
    for counts in (record.counts for record in records):
        for name in vars(total).keys() - {"max_pairs_in_row"}:
            setattr(total, name, getattr(total, name) + getattr(counts, name))
        total.max_pairs_in_row = max(total.max_pairs_in_row, counts.max_pairs_in_row)
    if total.rows:
        total.fill = sum(record.positions for record in records) / (total.rows * max_seq_length)
    return total


def finish(
    out: Path, plan: JobPlan, files: list[ShardFile], duplicates: dedup.Duplicates, similar: Mapping[int, int]
) -> None:
    """On rank 0, after the last unit: writes the vocabulary, the duplicates, and last the manifest."""
    manifest, vocabulary, corpus, comparison, held_out = plan
    counts, others = manifest.counts, []
    if comparison is not None:
        removed, kept = ((comparison.units, numbers.tolist()) for numbers in (duplicates.removed, duplicates.kept))
        dedup.write_names(out / manifests.DUPLICATES, {"removed": removed, "kept": kept})
        others.append(manifests.DUPLICATES)
    if held_out is not None:
        documents = sorted(similar)
        owners = (held_out.units, [similar[document] for document in documents])
        dedup.write_names(out / manifests.OVERLAPS, {"removed": (corpus.units, documents), "similar": owners})
        others.append(manifests.OVERLAPS)
    atomic.write_unless_other(out / vocabulary.file_name, vocabulary.serialized)
    others.append(vocabulary.file_name)
    manifest.files = [*files, *(manifests.describe_file(out / name) for name in others)]
    manifests.write_manifest(out, manifest)
    print(
        f"shards: wrote {out}: {counts.rows:,} rows of {manifest.max_seq_length} in {len(files)} shards, "
        f"{counts.tokens:,} tokens, {counts.pairs:,} pairs, {100 * counts.fill:.2f} % full; of {counts.documents:,} "
        f"documents {counts.documents_left_out:,} left out as too short, {counts.duplicates_left_out:,} as duplicates"
        + (f", {counts.similar_left_out:,} as similar to held-out ones" if held_out else "")
    )
