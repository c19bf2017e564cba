"""Extracts documents of plain text from raw collections.

    python -m data_prep extract --source books --input gutenberg/ --out DIR --held-out 0.01
    mpirun -n 16 python -m data_prep extract --source wikipedia --input enwiki-latest-pages-articles.xml.bz2 --out DIR

Work unit k of the input becomes DIR/train-k.parquet and, with --held-out, DIR/held_out-k.parquet. So the bytes do not
depend on the number of ranks or on interruptions. DIR/README.md tells `datasets.load_dataset` the splits.
DIR/documents.json is written last.
"""

import argparse
import contextlib
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from common.errors import UserError
from common.files import owned
from common.files.json_files import Count
from common.files.locks import LOCK
from common.files.names import refuse_link
from data_prep.corpus.documents import (
    CARD,
    HELD_OUT,
    LANGUAGE,
    MANIFEST,
    TRAIN,
    Document,
    DocumentCounts,
    DocumentsManifest,
    PartFile,
    documents_card,
    is_held_out,
    part_name,
    read_manifest,
    write_manifest,
    writing_part,
)
from data_prep.mpi.exclusive import Goal, reach
from data_prep.mpi.executor import Ranks, launch
from data_prep.mpi.ledger import Ledger, Record, UnitRecord, describe_differences
from data_prep.sources import Source
from data_prep.sources.books import Books
from data_prep.sources.hub import Hub
from data_prep.sources.jsonl import Fields, Records
from data_prep.sources.wikipedia import Wikipedia
from data_prep.text.languages import ENGLISH, check_language

_MAX_EXAMPLES = 5  # names of skipped input that the manifest lists for each reason
_FIELD_FLAGS = ("text_field", "id_field", "title_field", "records_per_document")
_HUB_FLAGS = ("subset", "hub_split")


def _open_wikipedia(args: argparse.Namespace) -> Source:
    return Wikipedia(_paths(args), args.unit_megabytes << 20, args.language)


def _open_books(args: argparse.Namespace) -> Source:
    return Books(_paths(args), args.unit_megabytes << 20)


def _open_records(args: argparse.Namespace) -> Source:
    return Records(_paths(args), _fields(args), args.unit_megabytes << 20)


def _open_hub(args: argparse.Namespace) -> Source:
    return Hub(args.input, args.subset, args.hub_split or "train", _fields(args))


# For each kind of collection, the function that opens it and the flags that it uses. Other kinds refuse these flags.
SOURCES: dict[str, tuple[Callable[[argparse.Namespace], Source], tuple[str, ...]]] = {
    "wikipedia": (_open_wikipedia, ()),
    "books": (_open_books, ()),
    "jsonl": (_open_records, _FIELD_FLAGS),
    "hub": (_open_hub, _FIELD_FLAGS + _HUB_FLAGS),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags of `python -m data_prep extract`."""
    parser.add_argument("--source", required=True, choices=sorted(SOURCES), help="kind of the raw collection")
    parser.add_argument("--input", required=True, nargs="+", metavar="PATH", help="files or directories (hub: names)")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="directory to write documents to")
    parser.add_argument(
        *("--held-out",),
        type=float,
        default=0.0,
        metavar="FRACTION",
        help="fraction of the documents to keep out of training",
    )
    parser.add_argument(
        *("--unit-megabytes",),
        type=int,
        default=16,
        metavar="N",
        help="megabytes of raw text in a work unit (default %(default)s)",
    )
    parser.add_argument(
        *("--language",),
        metavar="CODE",
        help="language of the texts, such as de (default: what the header of a MediaWiki export says, else en)",
    )
    fields = parser.add_argument_group("jsonl and hub")
    fields.add_argument("--text-field", metavar="NAME", help="field that contains the text (default text)")
    fields.add_argument("--id-field", metavar="NAME", help="field that identifies a document (default: its position)")
    fields.add_argument("--title-field", metavar="NAME", help="field that contains a title")
    fields.add_argument(
        "--records-per-document",
        type=int,
        metavar="N",
        help="consecutive records in one document, for records of one sentence, as in bookcorpus (default 1)",
    )
    hub = parser.add_argument_group("hub")
    hub.add_argument("--subset", metavar="NAME", help="configuration of the dataset, such as 20231101.en")
    hub.add_argument("--hub-split", metavar="NAME", help="split of the dataset (default train)")


def run(args: argparse.Namespace) -> None:
    """Extracts `args.input` into `args.out`, in one process or under MPI. UserError: a mistake of the user."""
    check_language(args.language)
    open_source, flags = check_flags(args)
    started = time.monotonic()
    with launch() as ranks:
        source = ranks.on_root(lambda: _readable(open_source, args))
        options = {"held_out": args.held_out, "unit_megabytes": args.unit_megabytes}
        options |= {flag: getattr(args, flag) for flag in flags}
        if source.language != ENGLISH:
            options[LANGUAGE] = source.language
        ledger = Ledger(args.out, _ExtractRecord)
        goal = Goal(
            output=args.out,
            lock=args.out / LOCK,
            scratch=ledger.directory,
            is_complete=lambda: is_complete(args.out, args.source, source.inputs, options),
            clear=ledger.remove,
            found=f"extract: {args.out} holds these documents already; nothing to do",
        )
        reach(ranks, goal, lambda: _extract(ranks, args, source, options, ledger, started))


def _extract(
    ranks: Ranks, args: argparse.Namespace, source: Source, options: dict[str, Any], ledger: Ledger, started: float
) -> None:
    """Extracts into `args.out`, whose lock rank 0 holds.

    Args:
        started: when the job began, by `time.monotonic`.
    """
    ranks.on_root(lambda: ledger.begin({"source": args.source, "inputs": source.inputs, **options}))
    # Counted before this run adds to it: the rate does not include the work of an earlier run.
    bytes_before = ranks.on_root(lambda: _bytes_done(ledger, len(source.units)))
    records = ranks.run(
        source.units,
        lambda index, unit: extract_unit(source, unit, index, args.out, args.held_out),
        ledger,
        sizes=source.sizes,
        description="extract",
    )

    def finish() -> None:
        manifest = summarize(args.source, source.inputs, options, records)
        if not any(counts.documents for counts in manifest.counts.values()):
            ledger.discard_files(file.name for file in manifest.files)
            found = describe_skipped(manifest)
            raise UserError(f"{', '.join(args.input)}: no document found ({found}); check --source and --input")
        owned.write_unless_other(args.out / CARD, documents_card(manifest).encode())
        write_manifest(args.out, manifest)
        ledger.remove()
        print(summary_line(manifest, bytes_before, time.monotonic() - started))

    ranks.on_root(finish)


def check_flags(args: argparse.Namespace) -> tuple[Callable[[argparse.Namespace], Source], tuple[str, ...]]:
    """Returns the function that opens the source, and the flags that it uses. UserError: a flag has a wrong value."""
    if not 0 <= args.held_out < 1:
        raise UserError(f"--held-out {args.held_out} is not a fraction of the documents; give one from 0 up to below 1")
    if args.unit_megabytes < 1:
        raise UserError(f"--unit-megabytes {args.unit_megabytes} is not a size; give 1 or more")
    if args.records_per_document is not None and args.records_per_document < 1:
        raise UserError(
            f"--records-per-document {args.records_per_document} is not a number of records; give 1 or more"
        )
    open_source, flags = SOURCES[args.source]
    for flag in dict.fromkeys(flag for _, of_source in SOURCES.values() for flag in of_source):
        if getattr(args, flag) is not None and flag not in flags:
            raise UserError(f"--{flag.replace('_', '-')} means nothing to --source {args.source}; leave it out")
    return open_source, flags


def _readable(open_source: Callable[[argparse.Namespace], Source], args: argparse.Namespace) -> Source:
    try:
        source = open_source(args)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(f"cannot read {error.filename or args.input[0]}: {reason}; check --input") from error
    source.language = args.language or source.language
    return source


def _bytes_done(ledger: Ledger, units: int) -> int:
    """Returns the raw bytes of the units that an earlier run finished."""
    return sum(record["raw_bytes"] for record in map(ledger.finished, range(units)) if record is not None)


def _paths(args: argparse.Namespace) -> list[Path]:
    return [Path(path) for path in args.input]


def _fields(args: argparse.Namespace) -> Fields:
    return Fields(args.text_field or "text", args.id_field, args.title_field, args.records_per_document or 1)


def is_complete(out: Path, source: str, inputs: list[dict[str, Any]], options: dict[str, Any]) -> bool:
    """Tells whether `out` contains exactly these documents. Inputs are compared by names, sizes and fingerprints.

    Raises:
        UserError: it contains other documents; the message says what differs.
    """
    if not (out / MANIFEST).is_file():
        return False
    there = read_manifest(out)
    recorded = {"source": there.source, "inputs": there.inputs, **there.options}
    wanted = {"source": source, "inputs": inputs, **options}
    if recorded == wanted:
        for file in there.files:
            path = out / file.name
            refuse_link(path, out / MANIFEST)
            if not path.is_file() or path.stat().st_size != file.bytes:
                raise UserError(f"{path} is missing or has another size than {MANIFEST} says; extract {out} again")
        return True
    if recorded["inputs"] != inputs:
        recorded["inputs"], wanted["inputs"] = _names(there.inputs), _names(inputs)
    raise UserError(
        f"{out} holds other documents ({describe_differences(recorded, wanted)}); "
        "give another --out or delete that directory"
    )


def _names(inputs: list[dict[str, Any]]) -> str:
    shown = [
        f"{entry['name']} ({entry['bytes']} bytes{_fingerprint_note(entry)})" if "bytes" in entry else str(entry)
        for entry in inputs[:3]
    ]
    return ", ".join(shown) + (f" and {len(inputs) - 3} more" if len(inputs) > 3 else "")


def _fingerprint_note(entry: dict[str, Any]) -> str:
    return f", xxh3 {entry['fingerprint'][:8]}" if "fingerprint" in entry else ""


@dataclass(frozen=True)
class _SkippedEntry:
    count: Count
    examples: list[str]


@dataclass(frozen=True, kw_only=True)
class _ExtractRecord(UnitRecord):
    """What `extract_unit` returns."""

    counts: dict[Literal["train", "held_out"], DocumentCounts]
    skipped: dict[str, _SkippedEntry]
    raw_bytes: Count
    files: list[PartFile]  # type: ignore[assignment]


def extract_unit(source: Source, unit: Any, index: int, out: Path, held_out: float) -> Record:
    """Writes the documents of one work unit, each to the file of its split. Returns the unit's record."""
    counts = {TRAIN: DocumentCounts()} | ({HELD_OUT: DocumentCounts()} if held_out else {})
    skipped: dict[str, dict[str, Any]] = {}
    consumed = source.consumed
    with contextlib.ExitStack() as stack:
        parts = {split: stack.enter_context(writing_part(out / part_name(split, index))) for split in counts}
        for item in source.read(unit):
            if isinstance(item, Document):
                split = HELD_OUT if held_out and is_held_out(item.id, held_out) else TRAIN
                counts[split].add(item)
                parts[split].add(item)
            else:
                entry = skipped.setdefault(item.reason, {"count": 0, "examples": []})
                entry["count"] += 1
                if len(entry["examples"]) < _MAX_EXAMPLES:
                    entry["examples"].append(item.name)
    files = [part.file for part in parts.values() if part.file is not None]
    return {
        "documents": sum(count.documents for count in counts.values()),
        "counts": {split: asdict(count) for split, count in counts.items()},
        "skipped": skipped,
        "raw_bytes": source.consumed - consumed,
        "files": [asdict(file) for file in files],
    }


def summarize(
    source: str, inputs: list[dict[str, Any]], options: dict[str, Any], records: list[Record]
) -> DocumentsManifest:
    """Returns the manifest of all units together, in their order."""
    counts = {TRAIN: DocumentCounts()} | ({HELD_OUT: DocumentCounts()} if options["held_out"] else {})
    skipped: dict[str, dict[str, Any]] = {}
    for record in records:
        for split, count in record["counts"].items():
            counts.setdefault(split, DocumentCounts()).merge(DocumentCounts(**count))
        for reason, entry in record["skipped"].items():
            total = skipped.setdefault(reason, {"count": 0, "examples": []})
            total["count"] += entry["count"]
            total["examples"] = (total["examples"] + entry["examples"])[:_MAX_EXAMPLES]
    files = [PartFile(**file) for record in records for file in record["files"]]
    return DocumentsManifest(
        source=source,
        inputs=inputs,
        options=options,
        counts=counts,
        raw_bytes=sum(record["raw_bytes"] for record in records),
        skipped=dict(sorted(skipped.items())),
        files=sorted(files, key=lambda file: not file.name.startswith(TRAIN)),  # stable: units stay in order
    )


def summary_line(manifest: DocumentsManifest, bytes_before: int, seconds: float) -> str:
    """Describes the result in one line. The rate does not include the bytes that an earlier run read."""
    total = DocumentCounts()
    for count in manifest.counts.values():
        total.merge(count)
    held_out = manifest.counts.get(HELD_OUT, DocumentCounts()).documents
    rate = (manifest.raw_bytes - bytes_before) / 1e6 / seconds
    return (
        f"extract: {total.documents:,} documents ({held_out:,} held out), {total.words:,} words, "
        f"{total.text_bytes / 1e6:.1f} MB of text from {manifest.raw_bytes / 1e6:.1f} MB "
        f"in {seconds:.1f} s ({rate:.1f} MB/s); {describe_skipped(manifest)}"
    )


def describe_skipped(manifest: DocumentsManifest) -> str:
    """Describes the input that gave no document: "skipped 99 redirect, 8 disambiguation page"."""
    if not manifest.skipped:
        return "nothing skipped"
    return "skipped " + ", ".join(f"{entry['count']:,} {reason}" for reason, entry in manifest.skipped.items())
