"""Extracts documents of plain text from raw collections.

    python -m data_prep extract --source books --input gutenberg/ --out DIR --held-out 0.01
    mpirun -n 16 python -m data_prep extract --source wikipedia --input enwiki-latest-pages-articles.xml.bz2 --out DIR

Work unit k of the input becomes DIR/train-k.parquet and, with --held-out, DIR/held_out-k.parquet. So the bytes do not
depend on the number of ranks or on interruptions. DIR/documents.json is written last.
"""

import argparse
import contextlib
import itertools
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from common.command_line import below_one, positive
from common.errors import UserError
from common.files.json_files import Count
from common.files.locks import LOCK
from data_prep.corpus import documents
from data_prep.corpus.documents import HELD_OUT, VALIDATION, Document, DocumentCounts, DocumentsManifest, SkippedCount
from data_prep.mpi import UNITS, Ledger, Ranks, UnitRecord, begin_job, check_same, end_job, launch, run_job
from data_prep.sources import Source
from data_prep.sources.books import Books, text_to_prose
from data_prep.sources.encodings import check_encoding
from data_prep.sources.records import EMPTY, NOT_TEXT, NOT_WANTED, Condition, Fields, Hub, Records
from data_prep.sources.wikipedia import Wikipedia
from data_prep.text import language_code, other_language

_SAMPLE_DOCUMENTS, _SAMPLE_CHARACTERS = 20, 5000  # of the first texts, to tell their language
_FIELD_FLAGS = ("text_field", "id_field", "title_field", "records_per_document", "where")
_HUB_FLAGS = (*_FIELD_FLAGS, "subset", "hub_split")
OWN_FLAGS = {"wikipedia": (), "books": ("encoding",), "text": ("encoding",), "jsonl": _FIELD_FLAGS, "hub": _HUB_FLAGS}
"""For each kind of collection the flags that only some kinds use; it refuses those of the others."""


@dataclass(frozen=True, kw_only=True)
class ExtractRecord(UnitRecord):
    """The documents and files of one work unit."""

    counts: dict[str, DocumentCounts]
    skipped: dict[str, SkippedCount]
    raw_bytes: Count
    files: list[documents.PartFile]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags of `python -m data_prep extract`."""
    flag = parser.add_argument
    flag("--source", required=True, choices=sorted(OWN_FLAGS), help="kind of the raw collection")
    flag("--input", required=True, nargs="+", metavar="PATH", help="files or directories (hub: names)")
    flag("--out", type=Path, required=True, metavar="DIR", help="directory to write documents to")
    flag("--held-out", type=below_one, default=0.0, metavar="FRACTION", help="of documents kept out of training")
    flag("--validation", type=below_one, default=0.0, metavar="FRACTION", help="kept out as well, to choose settings")
    flag("--unit-megabytes", type=positive, default=16, metavar="N", help="raw text in a work unit (default 16)")
    flag("--language", type=language_code, metavar="CODE", help="such as de (default: of a MediaWiki header, else en)")
    flag = parser.add_argument_group("books and text").add_argument
    flag("--encoding", metavar="NAME", help="of all files, such as big5 (default: UTF-8, UTF-16 or Windows-1252)")
    flag = parser.add_argument_group("jsonl and hub").add_argument
    flag("--text-field", metavar="NAME", help="field that contains the text (default text)")
    flag("--id-field", metavar="NAME", help="field that identifies a document (default: its position)")
    flag("--title-field", metavar="NAME", help="field that contains a title")
    flag("--records-per-document", type=positive, metavar="N", help="consecutive records in a document (default 1)")
    flag("--where", nargs="+", metavar="FIELD>=X", help="keep records with such a number or text (also <=, ==)")
    flag = parser.add_argument_group("hub").add_argument
    flag("--subset", metavar="NAME", help="configuration of the dataset, such as 20231101.en")
    flag("--hub-split", metavar="NAME", help="split of the dataset (default train)")


def run(args: argparse.Namespace) -> None:
    """Extracts `args.input` into `args.out`, in one process or under MPI. UserError: a mistake of the user."""
    check_encoding(args.encoding)
    if args.held_out + args.validation >= 1.0:
        raise UserError("--held-out and --validation leave nothing to train on; lower one of them")
    flags = OWN_FLAGS[args.source]
    for flag in itertools.chain.from_iterable(OWN_FLAGS.values()):
        if getattr(args, flag) is not None and flag not in flags:
            raise UserError(f"--{flag.replace('_', '-')} means nothing to --source {args.source}; leave it out")
    with launch() as ranks:
        source = ranks.on_root(lambda: open_source(args))
        options = {HELD_OUT: args.held_out, "unit_megabytes": args.unit_megabytes, documents.LANGUAGE: source.language}
        options |= {VALIDATION: args.validation} if args.validation else {}
        options |= {flag: value for flag in flags if (value := getattr(args, flag)) is not None or flag != "where"}
        counts = {split: DocumentCounts() for split in documents.splits_of(options)}
        plan = DocumentsManifest(args.source, source.inputs, options, counts, raw_bytes=0, skipped={})
        default = "from the header" if args.source == "wikipedia" else "by default"
        origin = "--language" if args.language else default
        work = partial(_extract, ranks, args.out, source, plan, origin)
        run_job(ranks, args.out, args.out / LOCK, lambda: is_complete(args.out, plan), work)


def open_source(args: argparse.Namespace) -> Source:
    """Returns the raw collection that the command line names. UserError: it cannot be read."""
    paths, unit_bytes = [Path(path) for path in args.input], args.unit_megabytes << 20
    where = tuple(map(Condition.parse, args.where or ()))
    fields = Fields(args.text_field or "text", args.id_field, args.title_field, args.records_per_document or 1, where)
    source: Source
    if args.source == "wikipedia":
        source = Wikipedia(paths, unit_bytes, args.language)
    elif args.source in ("books", "text"):
        source = Books(paths, unit_bytes, text_to_prose if args.source == "text" else None)
        source.encoding = args.encoding
    elif args.source == "jsonl":
        source = Records(paths, fields, unit_bytes)
    else:
        source = Hub(args.input, args.subset, args.hub_split or "train", fields)
    source.language = args.language or source.language
    return source


def _identity(manifest: DocumentsManifest) -> dict[str, Any]:
    """Everything that determines the documents. Inputs are known by names and sizes."""
    return {"source": manifest.source, "inputs": manifest.inputs, **manifest.options}


def say_language(source: Source, origin: str) -> None:
    """Prints the language of the texts and where it is from, and a warning if the first texts look like another one."""
    print(f"extract: language {source.language} ({origin})", flush=True)
    texts = (item.text for unit in source.units[:1] for item in source.read(unit) if isinstance(item, Document))
    sample = "\n".join(text[:_SAMPLE_CHARACTERS] for text in itertools.islice(texts, _SAMPLE_DOCUMENTS))
    if other := other_language(sample, known := source.language):
        print(f"warning: the first texts look like {other}, not {known}; if so, stop and give --language {other}")


def _extract(ranks: Ranks, out: Path, source: Source, manifest: DocumentsManifest, origin: str) -> None:
    """Extracts into `out`, whose lock rank 0 holds. `manifest` has no counts and no files yet."""
    ranks.on_root(lambda: begin_job(out, _identity(manifest)))
    ranks.on_root(lambda: say_language(source, origin))
    ledger = Ledger(out, ExtractRecord, out / UNITS)

    def work(index: int, unit: Any) -> ExtractRecord:
        return extract_unit(source, unit, index, out, manifest.options)

    records = ranks.run(source.units, work, ledger, sizes=source.sizes, description="extract")

    def finish() -> None:
        add_up(manifest, records)
        total = DocumentCounts()
        for counts in manifest.counts.values():
            total.merge(counts)
        reasons = [f"{entry.count:,} {reason}" for reason, entry in manifest.skipped.items()]
        skipped = f"skipped {', '.join(reasons) or 'nothing'}"
        if not total.documents:
            end_job(out, manifest.files)
            flag = "--text-field" if {EMPTY, NOT_TEXT} & manifest.skipped.keys() else "--source and --input"
            flag = "--where" if NOT_WANTED in manifest.skipped else flag
            flag = "--encoding" if f"not in {manifest.options.get('encoding')}" in manifest.skipped else flag
            raise UserError(f"--input holds no document ({skipped}); check {flag}")
        documents.write_manifest(out, manifest)
        held_out = manifest.counts.get(HELD_OUT, DocumentCounts()).documents
        print(
            f"extract: {total.documents:,} documents ({held_out:,} held out), {total.words:,} words, "
            f"{total.text_bytes / 1e6:.1f} MB of text from {manifest.raw_bytes / 1e6:.1f} MB; {skipped}"
        )
        for split in (HELD_OUT, VALIDATION):
            if split in manifest.counts and not manifest.counts[split].documents:
                none = f"--{split.replace('_', '-')} {manifest.options[split]} holds out none of these documents"
                least = f"{documents.least_fraction(out, manifest)} or more" if split == HELD_OUT else "a larger one"
                print(f"warning: {none}; to hold out some, extract into another --out with {least}")

    ranks.on_root(finish)


def is_complete(out: Path, plan: DocumentsManifest) -> bool:
    """Tells whether `out` contains exactly the documents of `plan`. UserError: it contains others."""
    if not (out / documents.MANIFEST).is_file():
        return False
    manifest = documents.read_manifest(out)
    check_same(out, "other documents", _identity(manifest), _identity(plan))
    for file in manifest.files:
        if not file.is_in(out):
            fault = f"is missing or has another size than {documents.MANIFEST} says"
            raise UserError(f"{out / file.name} {fault}; extract {out} again")
    return True


def extract_unit(source: Source, unit: Any, index: int, out: Path, options: dict[str, Any]) -> ExtractRecord:
    """Writes the documents of one work unit, each to the file of its split. Returns the unit's record."""
    counts = {split: DocumentCounts() for split in documents.splits_of(options)}
    skipped: dict[str, SkippedCount] = {}
    consumed = source.consumed
    with contextlib.ExitStack() as stack:
        paths = {split: out / documents.part_name(split, index) for split in counts}
        parts = {split: stack.enter_context(documents.writing_part(path)) for split, path in paths.items()}
        for item in source.read(unit):
            if isinstance(item, Document):
                split = documents.split_of(item.id, options[HELD_OUT], options.get(VALIDATION, 0.0))
                counts[split].add(item)
                parts[split].add(item)
            else:
                skipped.setdefault(item.reason, SkippedCount()).merge(SkippedCount(1, [item.name]))
    files = [part.file for part in parts.values() if part.file is not None]
    return ExtractRecord(counts=counts, skipped=skipped, raw_bytes=source.consumed - consumed, files=files)


def add_up(manifest: DocumentsManifest, records: list[ExtractRecord]) -> None:
    """Adds counts and files of all units, which are in order, to the manifest."""
    skipped: dict[str, SkippedCount] = {}
    for record in records:
        manifest.raw_bytes += record.raw_bytes
        manifest.files += record.files
        for split, counts in record.counts.items():
            manifest.counts[split].merge(counts)
        for reason, entry in record.skipped.items():
            skipped.setdefault(reason, SkippedCount()).merge(entry)
    manifest.skipped = dict(sorted(skipped.items()))
    manifest.files.sort(key=lambda file: not file.name.startswith(documents.TRAIN))  # stable: units stay in order
