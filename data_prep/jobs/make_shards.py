"""Makes shards of documents, one shard for each work unit.

python -m data_prep shards --documents DIR... --vocab FILE.model --out DIR [--max-seq-length 512] [--dedup near]
mpirun -n 8 python -m data_prep shards ...
"""

import argparse
import itertools
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from common.errors import UserError
from common.files import owned
from common.files.json_files import parse_object
from common.files.locks import LOCK
from data_prep.corpus import dedup
from data_prep.corpus.documents import SPLITS, TRAIN
from data_prep.corpus.work_units import Corpus, WorkUnit, open_corpus
from data_prep.format import manifest as manifests
from data_prep.format import shards
from data_prep.jobs.unit_shards import ShardOptions, ShardRecord, make_shard, total_counts
from data_prep.mpi.executor import Job, Ranks, launch, run_job
from data_prep.mpi.ledger import Ledger, describe_differences, discard_work
from data_prep.text.encoder import Encoder
from data_prep.text.vocabulary import Vocabulary

MAX_PIECES = 65_536  # token ids are stored as uint16
DEFAULT_MIN_TOKENS = 16
MAX_NAMED_DUPLICATES = 20  # duplicates that the manifest lists


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
    parser.add_argument("--vocab", type=Path, required=True, metavar="FILE", help=".model file that `vocab` wrote")
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
        type=int,
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
        job = Job(
            output=args.out,
            lock=args.out / LOCK,
            scratch=ledger.directory,
            is_complete=lambda: _is_complete(args.out, plan),
            work=lambda: _make(ranks, args, plan, ledger),
            clear=lambda: _clear(args.out),
            complete_message=f"shards: {args.out} is complete; nothing to do",
        )
        run_job(job, ranks)


def _make(ranks: Ranks, args: argparse.Namespace, plan: JobPlan, ledger: Ledger[ShardRecord]) -> None:
    """Makes the shards in `args.out`, whose lock rank 0 holds."""
    ranks.on_root(lambda: ledger.begin(plan.identity))
    duplicates = None
    if plan.comparison is not None:
        duplicates = dedup.find(ranks, plan.comparison, plan.options.dedup, dedup_scratch(args.out))
    encoder = Encoder(plan.vocabulary)

    def work(index: int, unit: WorkUnit) -> ShardRecord:
        removed: Collection[int] = ()
        if plan.comparison is not None and duplicates is not None:
            first = plan.comparison.start + unit.first_document
            removed = set((duplicates.between(first, first + unit.documents) - first).tolist())
        return make_shard(args.out / manifests.shard_name(index), unit, encoder, plan.options, removed)

    units = plan.corpus.units
    records = ranks.run(units, work, ledger, sizes=[unit.text_bytes for unit in units], description="shards")
    ranks.on_root(lambda: finish(args.out, plan, records, duplicates))


def dedup_scratch(out: Path) -> Path:
    """Returns where the search for duplicates keeps its files until the shards in `out` are complete."""
    return out / ".dedup"


def _clear(out: Path) -> None:
    """Removes what only an unfinished run needs."""
    discard_work(dedup_scratch(out))
    Ledger(out, ShardRecord).remove()


def _load_vocabulary(path: Path) -> Vocabulary:
    vocabulary = Vocabulary.load(path)
    if len(vocabulary) > MAX_PIECES:
        raise UserError(
            f"{path} has {len(vocabulary)} pieces and shards hold at most {MAX_PIECES}; train a smaller one"
        )
    return vocabulary


def plan_job(args: argparse.Namespace) -> JobPlan:
    """Checks the arguments and returns what to do."""
    options = ShardOptions(
        args.split, args.max_seq_length, args.seed, args.short_seq_prob, args.min_tokens, args.pack, args.dedup
    )
    if args.against and options.dedup == "none":
        raise UserError("--against names documents to compare with, and --dedup is none; add --dedup near, or exact")
    vocabulary = _load_vocabulary(args.vocab)
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


def finish(
    out: Path,
    plan: JobPlan,
    records: list[ShardRecord],
    duplicates: dedup.Duplicates | None,
) -> None:
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
    owned.write_unless_other(out / manifests.VOCABULARY, vocabulary.serialized)
    owned.write_unless_other(out / manifests.CARD, manifests.dataset_card(manifest).encode())
    # Users may edit the card, so the manifest does not list it. It lists every other file with its checksum.
    manifest.files.append(manifests.describe_file(out / manifests.VOCABULARY))
    manifests.write_manifest(out, manifest)
    _clear(out)
    print(
        f"shards: wrote {out}: {counts.rows:,} rows of {options.max_seq_length} in {len(records)} shards, "
        f"{counts.tokens:,} tokens, {counts.pairs:,} pairs, {100 * counts.fill:.2f} % full; "
        f"{counts.documents_left_out:,} of {counts.documents:,} documents left out (under {options.min_tokens} tokens)"
        + (f", {counts.duplicates_left_out:,} as duplicates ({options.dedup})" if comparison else "")
    )
