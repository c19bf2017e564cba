"""Makes shards of documents, one shard for each work unit.

python -m data_prep shards --documents DIR... --vocab FILE --out DIR [--max-seq-length 512] [--dedup near]
mpirun -n 8 python -m data_prep shards ...
"""

import argparse
import itertools
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from common.command_line import positive
from common.errors import UserError
from common.files import owned
from common.files.json_files import Count, parse_object
from common.files.locks import LOCK
from data_prep.corpus import dedup
from data_prep.corpus.documents import SPLITS, TRAIN
from data_prep.corpus.fingerprints import Method
from data_prep.corpus.work_units import Corpus, WorkUnit, open_corpus, read_texts_with_language
from data_prep.format import manifest as manifests
from data_prep.format import pairs, shards
from data_prep.format.manifest import ShardCounts, ShardFile
from data_prep.mpi.executor import Ranks, launch, run_job
from data_prep.mpi.ledger import Ledger, UnitRecord, describe_differences, discard_work
from data_prep.text.encoder import Encoder, without_cyclic_collection
from data_prep.text.sentences import iterate_sentences
from data_prep.text.vocabulary import UNK_ID, Vocabulary

MIN_SEQ_LENGTH = 16
MAX_SEQ_LENGTH = 65_535  # lengths are stored as uint16
MAX_SENTENCES_IN_MEMORY = 32_768  # encoded in one call; bounds the memory for Python objects
DEFAULT_MIN_TOKENS = 16
MAX_NAMED_DUPLICATES = 20  # duplicates that the manifest lists


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


@dataclass(frozen=True, kw_only=True)
class ShardRecord(UnitRecord):
    """The shard of one work unit, its counts (without `fill`), and the positions that its rows fill."""

    files: list[ShardFile]
    counts: ShardCounts
    positions: Count


class JobPlan(NamedTuple):
    """What a run of this job has to do.

    Attributes:
        options, vocabulary, corpus: which documents become rows, and how.
        comparison: documents to compare for duplicates; None without --dedup.
        identity: everything that determines the result, as JSON.
    """

    options: ShardOptions
    vocabulary: Vocabulary
    corpus: Corpus
    comparison: dedup.Comparison | None
    identity: dict[str, object]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags of `python -m data_prep shards`."""
    parser.add_argument(
        "--documents", type=Path, nargs="+", required=True, metavar="DIR", help="directories that `extract` wrote"
    )
    parser.add_argument(
        "--vocab",
        type=Path,
        required=True,
        metavar="FILE",
        help="of `vocab`, or vocab.txt, tokenizer.json or directory of a model",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="directory to write the shards to")
    parser.add_argument(
        "--language", metavar="CODE", help="of the documents, such as de (default: what `extract` recorded)"
    )
    parser.add_argument("--split", choices=SPLITS, default=TRAIN, help="split of the documents (default: %(default)s)")
    parser.add_argument(
        "--max-seq-length", type=int, default=512, metavar="N", help="positions in a row (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the cuts (default: %(default)s)")
    parser.add_argument(
        "--short-seq-prob", type=float, default=0.1, metavar="P", help="share of shorter pairs (default: %(default)s)"
    )
    parser.add_argument(
        "--min-tokens",
        type=positive,
        default=DEFAULT_MIN_TOKENS,
        metavar="N",
        help="least in a document (default: %(default)s)",
    )
    parser.add_argument(
        "--no-pack", dest="pack", action="store_false", help="one pair in each row, as in the paper, not full rows"
    )
    parser.add_argument(
        "--dedup", choices=("exact", "near", "none"), default="none", help="leave out duplicates (default: none)"
    )
    parser.add_argument(
        "--against", type=Path, nargs="+", default=[], metavar="DIR", help="leave out duplicates of these, too"
    )


def run(args: argparse.Namespace) -> None:
    """Makes the shard set `args.out`, continues an unfinished one, or recognises a complete one."""
    with launch() as ranks:
        plan = ranks.on_root(lambda: plan_job(args))
        ledger = Ledger(args.out, ShardRecord)
        run_job(
            ranks,
            output=args.out,
            lock=args.out / LOCK,
            scratch=ledger.directory,
            is_complete=lambda: _is_complete(args.out, plan),
            work=lambda: _make(ranks, args.out, plan, ledger),
            clear=lambda: _clear(args.out),
            complete_message=f"shards: {args.out} is complete; nothing to do",
        )


def _make(ranks: Ranks, out: Path, plan: JobPlan, ledger: Ledger[ShardRecord]) -> None:
    """Makes the shards in `out`, whose lock rank 0 holds."""
    ranks.on_root(lambda: ledger.begin(plan.identity))
    duplicates = None
    if plan.comparison is not None:
        duplicates = dedup.find(ranks, plan.comparison, plan.options.dedup, dedup_scratch(out))
    encoder = Encoder(plan.vocabulary)

    def work(index: int, unit: WorkUnit) -> ShardRecord:
        removed: Collection[int] = ()
        if plan.comparison is not None and duplicates is not None:
            first = plan.comparison.start + unit.first_document
            removed = set((duplicates.between(first, first + unit.documents) - first).tolist())
        return make_shard(out / manifests.shard_name(index), unit, encoder, plan.options, removed)

    units = plan.corpus.units
    records = ranks.run(units, work, ledger, sizes=[unit.text_bytes for unit in units], description="shards")
    ranks.on_root(lambda: finish(out, plan, records, duplicates))


def dedup_scratch(out: Path) -> Path:
    """Returns where the search for duplicates keeps its files until the shards in `out` are complete."""
    return out / ".dedup"


def _clear(out: Path) -> None:
    """Removes what only an unfinished run needs."""
    discard_work(dedup_scratch(out))
    Ledger(out, ShardRecord).remove()


def plan_job(args: argparse.Namespace) -> JobPlan:
    """Checks the arguments and returns what to do."""
    options = ShardOptions(
        args.split, args.max_seq_length, args.seed, args.short_seq_prob, args.min_tokens, args.pack, args.dedup
    )
    if args.against and options.dedup == "none":
        raise UserError("--against names documents to compare with, and --dedup is none; add --dedup near, or exact")
    vocabulary = Vocabulary.load(args.vocab)
    corpus = open_corpus(args.documents, options.split, args.language)
    comparison = None
    if options.dedup != "none":
        comparison = dedup.compare(args.documents, options.split, corpus, args.against)
    identity = asdict(options) | {
        "format_version": manifests.FORMAT_VERSION,
        "rules_version": manifests.RULES_VERSION,
        "normalization": vocabulary.normalization.description,
        "vocabulary_sha256": vocabulary.sha256,
        "documents_digest": corpus.digest,
        "language": corpus.language,
        "compared_digest": comparison.digest if comparison else "",
    }
    return JobPlan(options, vocabulary, corpus, comparison, identity)


def _is_complete(out: Path, plan: JobPlan) -> bool:
    """Whether `out` holds the shards of `plan`. UserError: it holds shards of other options."""
    if not (out / manifests.MANIFEST).exists():
        return False
    recorded = asdict(shards.open_shards(out).manifest)
    if differences := describe_differences({name: recorded[name] for name in plan.identity}, plan.identity):
        raise UserError(
            f"{out} holds shards of other options ({differences}); use another --out or delete that directory"
        )
    return True


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
    costs = made.parts.positions()
    max_pairs_in_row = pairs.max_pairs(options.max_seq_length) if options.pack else 1
    row_of = pairs.pack(costs, options.max_seq_length, max_pairs_in_row)
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
    counts = ShardCounts(
        documents=unit.documents,
        sentences=len(sentence_lengths),
        pairs=len(made),
        tokens=len(kept),
        rows=len(pairs_per_row),
        max_pairs_in_row=int(pairs_per_row.max(initial=0)),
        pairs_without_b=int((made.parts.b == 0).sum()),
        documents_left_out=made.documents_left_out - len(removed),
        duplicates_left_out=len(removed),
        tokens_left_out=made.tokens_left_out,
        unknown_tokens=int((kept == UNK_ID).sum()),
        text_bytes=text_bytes,
        sentences_per_document=np.bincount(np.frexp(np.delete(sentences_per_document, list(removed)))[1]).tolist(),
    )
    return ShardRecord(documents=unit.documents, files=[file], counts=counts, positions=int(costs.sum()))


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
    total = ShardCounts()
    for counts in (record.counts for record in records):
        for name in vars(total).keys() - {"max_pairs_in_row", "sentences_per_document"}:
            setattr(total, name, getattr(total, name) + getattr(counts, name))
        total.max_pairs_in_row = max(total.max_pairs_in_row, counts.max_pairs_in_row)
        bins = itertools.zip_longest(total.sentences_per_document, counts.sentences_per_document, fillvalue=0)
        total.sentences_per_document = [sum(pair) for pair in bins]
    if total.rows:
        total.fill = sum(record.positions for record in records) / (total.rows * max_seq_length)
    return total


def finish(out: Path, plan: JobPlan, records: list[ShardRecord], duplicates: dedup.Duplicates | None) -> None:
    """On rank 0, after the last unit: writes the vocabulary, the duplicates, the card, and last the manifest."""
    options, vocabulary, corpus, comparison, _ = plan
    counts = total_counts(records, options.max_seq_length)
    if not counts.rows:
        discard_work(dedup_scratch(out))
        Ledger(out, ShardRecord).discard_files(file.name for record in records for file in record.files)
        raise UserError(
            f"of {counts.documents:,} documents {counts.documents_left_out:,} have fewer than {options.min_tokens} "
            f"tokens and {counts.duplicates_left_out:,} are duplicates, so there are no rows; "
            "lower --min-tokens or add text"
        )
    manifest = manifests.ShardManifest(
        **asdict(options),
        vocabulary_sha256=vocabulary.sha256,
        vocabulary_size=len(vocabulary),
        normalization=vocabulary.normalization.description,
        documents_digest=corpus.digest,
        language=corpus.language,
        rules_version=manifests.RULES_VERSION,
        sources=corpus.sources,
        counts=counts,
        files=[file for record in records for file in record.files],
        compared_digest=comparison.digest if comparison else "",
    )
    if comparison is not None and duplicates is not None:
        dedup.write_names(out / manifests.DUPLICATES, comparison, duplicates)
        with (out / manifests.DUPLICATES).open("rb") as lines:
            manifest.duplicates = [
                parse_object(line, out / manifests.DUPLICATES, "run this again")
                for line in itertools.islice(lines, MAX_NAMED_DUPLICATES)
            ]
        manifest.files.append(manifests.describe_file(out / manifests.DUPLICATES))
    owned.write_unless_other(out / vocabulary.file_name, vocabulary.serialized)
    # Users may edit the card, so the manifest does not list it. It lists every other file with its checksum.
    manifest.files.append(manifests.describe_file(out / vocabulary.file_name))
    owned.write_unless_other(out / manifests.CARD, manifests.dataset_card(manifest).encode())
    manifests.write_manifest(out, manifest)
    _clear(out)
    print(
        f"shards: wrote {out}: {counts.rows:,} rows of {options.max_seq_length} in {len(records)} shards, "
        f"{counts.tokens:,} tokens, {counts.pairs:,} pairs, {100 * counts.fill:.2f} % full; "
        f"{counts.documents_left_out:,} of {counts.documents:,} documents left out (under {options.min_tokens} tokens)"
        + (f", {counts.duplicates_left_out:,} as duplicates ({options.dedup})" if comparison else "")
    )
