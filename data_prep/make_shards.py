"""Documents to shards, a unit of work at a time.

python -m data_prep shards --documents DIR... --vocab FILE.model --out DIR [--max-seq-length 512] [--dedup near]
mpirun -n 8 python -m data_prep shards ...
"""

import argparse
import itertools
import json
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from data_prep import batch, card, dedup, packs, pairs, shards
from data_prep.atomic import replacing, write_text
from data_prep.documents import SPLITS, TRAIN
from data_prep.encoder import Encoder, without_cyclic_collection
from data_prep.errors import UserError
from data_prep.fingerprints import Method
from data_prep.ledger import Ledger, Record, describe_differences
from data_prep.text import split_sentences
from data_prep.units import Corpus, Unit, open_corpus, read_texts
from data_prep.vocabulary import NORMALIZATION, UNK_ID, Vocabulary

LEAST_SEQ_LENGTH = 16
MOST_SEQ_LENGTH = 65_535  # lengths are stored as uint16
MOST_PIECES = 65_536  # and so are tokens
DEFAULT_MIN_TOKENS = 16
MOST_NAMED = 20  # duplicates in the manifest
SENTENCES_AT_ONCE = 32_768  # encoded in one go: they bound what is in memory as Python objects


@dataclass(frozen=True)
class Options:
    """What decides the rows of a shard set, beside the corpus and the vocabulary; see `add_arguments`."""

    split: str
    max_seq_length: int
    seed: int
    short_seq_prob: float
    min_tokens: int
    pack: bool
    dedup: Method = "none"

    def __post_init__(self) -> None:
        if not LEAST_SEQ_LENGTH <= self.max_seq_length <= MOST_SEQ_LENGTH:
            raise UserError(
                f"--max-seq-length is {self.max_seq_length}; "
                f"choose one from {LEAST_SEQ_LENGTH} to {MOST_SEQ_LENGTH}, the paper's is 512"
            )
        if not 0 <= self.short_seq_prob <= 1:
            raise UserError(f"--short-seq-prob is {self.short_seq_prob}; choose a probability, the paper's is 0.1")
        if not 0 <= self.seed < 2**63:
            raise UserError(f"--seed is {self.seed}; choose one from 0 to 2**63 - 1")
        if self.min_tokens < 1:
            raise UserError(f"--min-tokens is {self.min_tokens}; choose 1 to keep every document, or more")


class Plan(NamedTuple):
    """What is to be done: how, with which vocabulary and documents; identity: all that decides the result, as JSON."""

    options: Options
    vocabulary: Vocabulary
    corpus: Corpus
    comparison: dedup.Comparison | None
    identity: dict[str, object]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags of `python -m data_prep shards`."""
    parser.add_argument(
        *("--documents",), type=Path, nargs="+", required=True, metavar="DIR", help="directories that `extract` wrote"
    )
    parser.add_argument("--vocab", type=Path, required=True, metavar="FILE", help=".model file that `vocab` wrote")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="directory to make")
    parser.add_argument("--split", choices=SPLITS, default=TRAIN, help="which documents (default: %(default)s)")
    parser.add_argument(
        *("--max-seq-length",), type=int, default=512, metavar="N", help="positions of a row (default: %(default)s)"
    )
    parser.add_argument(
        *("--seed",), type=int, default=0, metavar="N", help="of the pairs' lengths and cuts (default: %(default)s)"
    )
    parser.add_argument(
        *("--short-seq-prob",),
        type=float,
        default=0.1,
        metavar="P",
        help="share of pairs with a random shorter target length (default: %(default)s)",
    )
    parser.add_argument(
        *("--min-tokens",),
        type=int,
        default=DEFAULT_MIN_TOKENS,
        metavar="N",
        help="documents with fewer tokens are left out and counted (default: %(default)s)",
    )
    parser.add_argument(
        *("--no-pack",), dest="pack", action="store_false", help="one pair a row, as in the paper, instead of full rows"
    )
    parser.add_argument(
        *("--dedup",),
        choices=("exact", "near", "none"),
        default="none",
        help="leave out documents that stand in --documents already, or are held out (default: %(default)s)",
    )
    parser.add_argument(
        *("--against",),
        type=Path,
        nargs="+",
        default=[],
        metavar="DIR",
        help="with --dedup: documents of other shards, whose twins are left out here",
    )


def run(args: argparse.Namespace) -> None:
    """Makes the shard set `args.out`, or finishes or recognises the one that is there."""
    with batch.launch() as ranks:
        plan = ranks.on_root(lambda: _plan(args))
        if plan is None:
            return
        ledger = Ledger(args.out)
        ranks.on_root(lambda: ledger.begin(plan.identity))
        duplicates = None
        if plan.comparison is not None:
            duplicates = dedup.find(ranks, plan.comparison, plan.options.dedup, _scratch(args.out))
        encoder = Encoder(plan.vocabulary)

        def work(index: int, unit: Unit) -> Record:
            removed: Collection[int] = ()
            if plan.comparison is not None and duplicates is not None:
                first = plan.comparison.start + unit.first_document
                removed = set((duplicates.between(first, first + unit.documents) - first).tolist())
            return make_shard(args.out / shards.shard_name(index), unit, encoder, plan.options, removed)

        units = plan.corpus.units
        records = ranks.run(units, work, ledger, sizes=[unit.text_bytes for unit in units], description="shards")
        ranks.on_root(lambda: _finish(args.out, plan, records, duplicates))


def _scratch(out: Path) -> Path:
    return out / ".dedup"


def _clear(out: Path) -> None:
    """Takes away what is needed only to go on."""
    dedup.discard(_scratch(out))
    Ledger(out).remove()


def _load_vocabulary(path: Path) -> Vocabulary:
    vocabulary = Vocabulary.load(path)
    if len(vocabulary) > MOST_PIECES:
        raise UserError(
            f"{path} has {len(vocabulary)} pieces and shards hold at most {MOST_PIECES}; train a smaller one"
        )
    return vocabulary


def _plan(args: argparse.Namespace) -> Plan | None:
    """What is to be done and by which options; None where it is done already."""
    options = Options(
        args.split, args.max_seq_length, args.seed, args.short_seq_prob, args.min_tokens, args.pack, args.dedup
    )
    if args.against and options.dedup == "none":
        raise UserError("--against names documents to compare with, and --dedup is none; add --dedup near, or exact")
    vocabulary = _load_vocabulary(args.vocab)
    corpus = open_corpus(args.documents, options.split)
    comparison = None
    if options.dedup != "none":
        comparison = dedup.compare(args.documents, options.split, args.against)
    identity = asdict(options) | {
        "format_version": shards.FORMAT_VERSION,
        "normalization": NORMALIZATION,
        "vocabulary_sha256": vocabulary.sha256,
        "documents_digest": corpus.digest,
        "compared_digest": comparison.digest if comparison else "",
    }
    if (args.out / shards.MANIFEST).exists():
        there = asdict(shards.open_shards(args.out).manifest)
        if differences := describe_differences({name: there[name] for name in identity}, identity):
            raise UserError(
                f"{args.out} holds shards of other options ({differences}); use another --out or delete that directory"
            )
        _clear(args.out)  # a kill may have come between the manifest and this
        print(f"shards: {args.out} is complete; nothing to do")
        return None
    return Plan(options, vocabulary, corpus, comparison, identity)


def make_shard(path: Path, unit: Unit, encoder: Encoder, options: Options, removed: Collection[int] = ()) -> Record:
    """Writes the shard of one unit; returns its record: "files", counts, and the positions that its rows fill.

    Args:
        removed: documents of the unit to leave out, counted from 0. The others keep their numbers, and so their draws.
    """
    texts = ("" if number in removed else text for number, text in enumerate(read_texts(unit)))
    tokens, sentence_lengths, sentences_per_document, text_bytes = encode_documents(texts, encoder)
    made = pairs.make_pairs(
        sentence_lengths,
        sentences_per_document,
        unit.first_document,
        max_seq_length=options.max_seq_length,
        short_probability=options.short_seq_prob,
        min_tokens=options.min_tokens,
        seed=options.seed,
    )
    costs = packs.positions(made.parts)
    most_pairs = packs.max_pairs(options.max_seq_length) if options.pack else 1
    row_of = packs.pack(costs, options.max_seq_length, most_pairs)
    order = np.argsort(row_of, kind="stable")  # (P,) pairs, row after row, in the order of the text within a row
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
    return {
        "files": [asdict(file)],
        "documents": unit.documents,
        "sentences": len(sentence_lengths),
        "pairs": len(made),
        "tokens": len(kept),
        "rows": len(pairs_per_row),
        "positions": int(costs.sum()),
        "max_pairs_in_row": int(pairs_per_row.max(initial=0)),
        "pairs_without_b": int((made.parts.b == 0).sum()),
        "documents_left_out": made.documents_left_out - len(removed),
        "duplicates_left_out": len(removed),
        "tokens_left_out": made.tokens_left_out,
        "unknown_tokens": int((kept == UNK_ID).sum()),
        "text_bytes": text_bytes,
        "sentences_per_document": np.bincount(np.frexp(np.delete(sentences_per_document, list(removed)))[1]).tolist(),
    }


@without_cyclic_collection()
def encode_documents(
    texts: Iterable[str], encoder: Encoder
) -> tuple[NDArray[np.uint16], NDArray[np.int64], NDArray[np.int64], int]:
    """Splits, normalises and encodes documents.

    Returns:
        All tokens, uint16; the tokens of each sentence, int64; the sentences of each document, int64; and the bytes of
        the documents in UTF-8.
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

    for text in texts:
        sentences = split_sentences(text)
        sentences_per_document.append(len(sentences))
        text_bytes += len(text) if text.isascii() else len(text.encode())
        waiting += sentences
        if len(waiting) >= SENTENCES_AT_ONCE:
            encode_waiting()
    encode_waiting()
    return (
        np.concatenate(tokens),
        np.concatenate(lengths),
        np.array(sentences_per_document, np.int64),
        text_bytes,
    )


def _finish(
    out: Path,
    plan: Plan,
    records: list[Record],
    duplicates: dedup.Duplicates | None,
) -> None:
    """Rank 0, after the last unit: the vocabulary, the names of duplicates, the card, and the manifest at the end."""
    options, vocabulary, corpus, comparison, _ = plan
    counts = total_counts(records, options.max_seq_length)
    if not counts.rows:
        for record in records:
            for file in record["files"]:
                (out / file["name"]).unlink()
        _clear(out)
        if not any(out.iterdir()):
            out.rmdir()
        raise UserError(
            f"of {counts.documents:,} documents {counts.documents_left_out:,} have fewer than {options.min_tokens} "
            f"tokens and {counts.duplicates_left_out:,} are duplicates, so there are no rows; "
            "lower --min-tokens or add text"
        )
    manifest = shards.Manifest(
        **asdict(options),
        vocabulary_sha256=vocabulary.sha256,
        vocabulary_size=len(vocabulary),
        normalization=NORMALIZATION,
        documents_digest=corpus.digest,
        sources=corpus.sources,
        counts=counts,
        files=[shards.ShardFile(**file) for record in records for file in record["files"]],
        compared_digest=comparison.digest if comparison else "",
    )
    if comparison is not None and duplicates is not None:
        dedup.write_names(out / shards.DUPLICATES, comparison, duplicates)
        with (out / shards.DUPLICATES).open(encoding="utf-8") as lines:
            manifest.duplicates = [json.loads(line) for line in itertools.islice(lines, MOST_NAMED)]
        manifest.files.append(shards.describe_file(out / shards.DUPLICATES))
    with replacing(out / shards.VOCABULARY) as temporary:
        temporary.write_bytes(vocabulary.serialized)
    write_text(out / shards.CARD, card.dataset_card(manifest))
    # The card is for people, who may write into it; everything else is checked byte for byte.
    manifest.files.append(shards.describe_file(out / shards.VOCABULARY))
    shards.write_manifest(out, manifest)
    _clear(out)
    print(
        f"shards: wrote {out}: {counts.rows:,} rows of {options.max_seq_length} in {len(records)} shards, "
        f"{counts.tokens:,} tokens, {counts.pairs:,} pairs, {100 * counts.fill:.2f} % full; "
        f"{counts.documents_left_out:,} of {counts.documents:,} documents left out (under {options.min_tokens} tokens)"
        + (f", {counts.duplicates_left_out:,} as duplicates ({options.dedup})" if comparison else "")
    )


def total_counts(records: list[Record], max_seq_length: int) -> shards.Counts:
    """Sums the counts of all units."""
    counts = shards.Counts()
    histogram: list[int] = []
    positions = 0
    for record in records:
        for name in vars(counts).keys() & record.keys() - {"sentences_per_document", "max_pairs_in_row"}:
            setattr(counts, name, getattr(counts, name) + record[name])
        counts.max_pairs_in_row = max(counts.max_pairs_in_row, record["max_pairs_in_row"])
        positions += record["positions"]
        bins = record["sentences_per_document"]
        histogram += [0] * (len(bins) - len(histogram))
        histogram[: len(bins)] = [total + n for total, n in zip(histogram, bins)]
    counts.sentences_per_document = histogram
    counts.fill = positions / (counts.rows * max_seq_length) if counts.rows else 0.0
    return counts
