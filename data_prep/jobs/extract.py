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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.command_line import below_one, positive
from common.errors import UserError
from common.files import owned
from common.files.json_files import Count
from common.files.locks import LOCK
from common.files.places import refuse_link
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
    SkippedCount,
    documents_card,
    is_held_out,
    part_name,
    read_manifest,
    write_manifest,
    writing_part,
)
from data_prep.mpi.executor import Ranks, launch, run_job
from data_prep.mpi.ledger import Ledger, UnitRecord, describe_differences
from data_prep.sources import Source
from data_prep.sources.books import Books
from data_prep.sources.records import Fields, Hub, Records
from data_prep.sources.wikipedia import Wikipedia
from data_prep.text.languages import ENGLISH, check_language

_FIELD_FLAGS = ("text_field", "id_field", "title_field", "records_per_document")
_HUB_FLAGS = ("subset", "hub_split")


@dataclass(frozen=True, kw_only=True)
class ExtractRecord(UnitRecord):
    """The documents and files of one work unit."""

    counts: dict[str, DocumentCounts]
    skipped: dict[str, SkippedCount]
    raw_bytes: Count
    files: list[PartFile]


def _fields(args: argparse.Namespace) -> Fields:
    return Fields(args.text_field or "text", args.id_field, args.title_field, args.records_per_document or 1)


# For each kind of collection, the function that opens it and the flags that it uses. Other kinds refuse these flags.
SOURCES: dict[str, tuple[Callable[[argparse.Namespace], Source], tuple[str, ...]]] = {
    "wikipedia": (lambda args: Wikipedia(_paths(args), args.unit_megabytes << 20, args.language), ()),
    "books": (lambda args: Books(_paths(args), args.unit_megabytes << 20), ()),
    "jsonl": (lambda args: Records(_paths(args), _fields(args), args.unit_megabytes << 20), _FIELD_FLAGS),
    "hub": (
        lambda args: Hub(args.input, args.subset, args.hub_split or "train", _fields(args)),
        _FIELD_FLAGS + _HUB_FLAGS,
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags of `python -m data_prep extract`."""
    parser.add_argument("--source", required=True, choices=sorted(SOURCES), help="kind of the raw collection")
    parser.add_argument("--input", required=True, nargs="+", metavar="PATH", help="files or directories (hub: names)")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="directory to write documents to")
    parser.add_argument(
        "--held-out", type=below_one, default=0.0, metavar="FRACTION", help="fraction of documents kept out of training"
    )
    parser.add_argument(
        "--unit-megabytes", type=positive, default=16, metavar="N", help="raw text in a work unit (default %(default)s)"
    )
    parser.add_argument(
        "--language", metavar="CODE", help="such as de (default: what the header of a MediaWiki export says, else en)"
    )
    fields = parser.add_argument_group("jsonl and hub")
    fields.add_argument("--text-field", metavar="NAME", help="field that contains the text (default text)")
    fields.add_argument("--id-field", metavar="NAME", help="field that identifies a document (default: its position)")
    fields.add_argument("--title-field", metavar="NAME", help="field that contains a title")
    fields.add_argument(
        "--records-per-document", type=positive, metavar="N", help="consecutive records in one document (default 1)"
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
        ledger = Ledger(args.out, ExtractRecord)
        run_job(
            ranks,
            output=args.out,
            lock=args.out / LOCK,
            scratch=ledger.directory,
            is_complete=lambda: is_complete(args.out, args.source, source.inputs, options),
            work=lambda: _extract(ranks, args, source, options, ledger, started),
            clear=ledger.remove,
            complete_message=f"extract: {args.out} holds these documents already; nothing to do",
        )


def _extract(
    ranks: Ranks,
    args: argparse.Namespace,
    source: Source,
    options: dict[str, Any],
    ledger: Ledger[ExtractRecord],
    started: float,
) -> None:
    """Extracts into `args.out`, whose lock rank 0 holds.

    Args:
        started: when the job began, by `time.monotonic`.
    """
    ranks.on_root(lambda: ledger.begin({"source": args.source, "inputs": source.inputs, **options}))
    # Counted before this run adds to it: the rate does not include the work of an earlier run.
    earlier = ranks.on_root(lambda: [ledger.finished(index) for index in range(len(source.units))])
    bytes_before = sum(record.raw_bytes for record in earlier if record is not None)
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
            skipped = describe_skipped(manifest)
            raise UserError(f"{', '.join(args.input)}: no document found ({skipped}); check --source and --input")
        owned.write_unless_other(args.out / CARD, documents_card(manifest).encode())
        write_manifest(args.out, manifest)
        ledger.remove()
        print(summary_line(manifest, bytes_before, time.monotonic() - started))

    ranks.on_root(finish)


def check_flags(args: argparse.Namespace) -> tuple[Callable[[argparse.Namespace], Source], tuple[str, ...]]:
    """Returns the function that opens the source, and the flags that it uses. UserError: another source uses a flag."""
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


def _paths(args: argparse.Namespace) -> list[Path]:
    return [Path(path) for path in args.input]


def is_complete(out: Path, source: str, inputs: list[dict[str, Any]], options: dict[str, Any]) -> bool:
    """Tells whether `out` contains exactly these documents. Inputs are compared by names, sizes and fingerprints.

    Raises:
        UserError: it contains other documents; the message says what differs.
    """
    if not (out / MANIFEST).is_file():
        return False
    manifest = read_manifest(out)
    recorded = {"source": manifest.source, "inputs": manifest.inputs, **manifest.options}
    wanted = {"source": source, "inputs": inputs, **options}
    if recorded == wanted:
        for file in manifest.files:
            path = out / file.name
            refuse_link(path, out / MANIFEST)
            if not path.is_file() or path.stat().st_size != file.bytes:
                raise UserError(f"{path} is missing or has another size than {MANIFEST} says; extract {out} again")
        return True
    if recorded["inputs"] != inputs:
        recorded["inputs"], wanted["inputs"] = _names(manifest.inputs), _names(inputs)
    raise UserError(
        f"{out} holds other documents ({describe_differences(recorded, wanted)}); "
        "give another --out or delete that directory"
    )


def _names(inputs: list[dict[str, Any]]) -> str:
    shown = [" ".join(f"{name}={str(value)[:60]}" for name, value in entry.items()) for entry in inputs[:3]]
    return ", ".join(shown) + (f" and {len(inputs) - 3} more" if len(inputs) > 3 else "")


def extract_unit(source: Source, unit: Any, index: int, out: Path, held_out: float) -> ExtractRecord:
    """Writes the documents of one work unit, each to the file of its split. Returns the unit's record."""
    counts = _counts_of_splits(held_out)
    skipped: dict[str, SkippedCount] = {}
    consumed = source.consumed
    with contextlib.ExitStack() as stack:
        parts = {split: stack.enter_context(writing_part(out / part_name(split, index))) for split in counts}
        for item in source.read(unit):
            if isinstance(item, Document):
                split = HELD_OUT if held_out and is_held_out(item.id, held_out) else TRAIN
                counts[split].add(item)
                parts[split].add(item)
            else:
                skipped.setdefault(item.reason, SkippedCount()).merge(SkippedCount(1, [item.name]))
    return ExtractRecord(
        documents=sum(count.documents for count in counts.values()),
        counts=counts,
        skipped=skipped,
        raw_bytes=source.consumed - consumed,
        files=[part.file for part in parts.values() if part.file is not None],
    )


def _counts_of_splits(held_out: float) -> dict[str, DocumentCounts]:
    return {TRAIN: DocumentCounts()} | ({HELD_OUT: DocumentCounts()} if held_out else {})


def summarize(
    source: str, inputs: list[dict[str, Any]], options: dict[str, Any], records: list[ExtractRecord]
) -> DocumentsManifest:
    """Returns the manifest of all units together, in their order."""
    counts = _counts_of_splits(options["held_out"])
    skipped: dict[str, SkippedCount] = {}
    for record in records:
        for split, count in record.counts.items():
            counts.setdefault(split, DocumentCounts()).merge(count)
        for reason, entry in record.skipped.items():
            skipped.setdefault(reason, SkippedCount()).merge(entry)
    files = [file for record in records for file in record.files]
    return DocumentsManifest(
        source=source,
        inputs=inputs,
        options=options,
        counts=counts,
        raw_bytes=sum(record.raw_bytes for record in records),
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
    return "skipped " + ", ".join(f"{entry.count:,} {reason}" for reason, entry in manifest.skipped.items())
