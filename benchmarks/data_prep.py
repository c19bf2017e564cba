"""Measures data preparation beside a bare SentencePiece: MB/s and memory.

    python -m benchmarks.data_prep --books DIR --wikipedia EXPORT --vocab FILE.model [--out benchmarks/results/NAME]

Each job runs as a process of its own, as a user runs it. The seconds of a start are subtracted: they are measured by
running the same command again, when nothing is left to do. Rounds alternate between one rank, two ranks, and
SentencePiece alone, which encodes a list of the same normalised sentences. One and two ranks are also compared on
several copies of the text, because every rank encodes each new word once, and for a short text that takes much of its
time. MB are of the documents' text in UTF-8; for a Wikipedia export they are of its decompressed XML.

Rates are per second of processor time. On an idle machine that equals wall-clock time, and it stays close to it when
other programs use the same cores. Ratios are also given by wall-clock time. Those are only meaningful on an idle
machine, so the load of the minute before is printed with them. Writes NAME.json and NAME.md.
"""

import argparse
import itertools
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import sentencepiece

from benchmarks.shared import report
from common.command_line import Parser, entry_point
from common.errors import UserError
from common.text import markdown_table
from data_prep.corpus.documents import TRAIN, read_manifest
from data_prep.corpus.fingerprints import fingerprints_of
from data_prep.corpus.work_units import open_corpus, read_column
from data_prep.format import shard_manifest as manifests
from data_prep.format import shards
from data_prep.jobs.verify import problem_of
from data_prep.text.load_vocabulary import load_vocabulary
from data_prep.text.normalize import normalize
from data_prep.text.sentences import split_sentences

VERIFIED_BYTES = 1 << 30


class Run(NamedTuple):
    """One job with all its ranks.

    Attributes:
        seconds: of wall-clock time.
        cpu_seconds: of processor time.
        peak_bytes: memory of the rank that needs most.
    """

    seconds: float
    cpu_seconds: float
    peak_bytes: int


def job(*words: object, ranks: int = 1) -> Run:
    """Runs `python -m data_prep WORDS`. Raises UserError if it fails."""
    launcher = ["mpirun", "-n", str(ranks), "--bind-to", "none"] if ranks > 1 else []
    command = [*launcher, sys.executable, "-m", "data_prep", *map(str, words)]
    begun = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise UserError(f"{' '.join(command)} failed: {said.strip()[-300:]}; mend that and start again")
    return Run(time.perf_counter() - begun, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def timed_job(*words: object, ranks: int = 1) -> Run:
    """As `job`, without the seconds of a start. The job must do nothing when it is run again."""
    done, start = job(*words, ranks=ranks), job(*words, ranks=ranks)
    return Run(done.seconds - start.seconds, done.cpu_seconds - start.cpu_seconds, done.peak_bytes)


def bare_seconds(sentences: list[str], processor: sentencepiece.SentencePieceProcessor) -> tuple[float, float]:
    """Wall-clock and processor seconds of SentencePiece alone for `sentences`, on one thread."""
    begun, cpu_begun = time.perf_counter(), time.process_time()
    processor.encode(sentences, out_type=int)
    return time.perf_counter() - begun, time.process_time() - cpu_begun


def measure(args: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """All measurements; rates are in bytes per second."""
    books, wikipedia = scratch / "books", scratch / "wikipedia"
    extract_books = timed_job("extract", "--source", "books", "--input", args.books, "--out", books)
    extract_wikipedia = timed_job("extract", "--source", "wikipedia", "--input", args.wikipedia, "--out", wikipedia)
    prose, export = read_manifest(books), read_manifest(wikipedia)
    text_bytes = prose.counts["train"].text_bytes

    texts = [text for unit in open_corpus([books], TRAIN).units for text in read_column(unit, "text")]
    vocabulary = load_vocabulary(args.vocab)
    sentences = [normalize(sentence, vocabulary.normalization) for text in texts for sentence in split_sentences(text)]
    processor = sentencepiece.SentencePieceProcessor(model_proto=vocabulary.serialized)
    command = ["shards", "--documents", books, "--vocab", args.vocab, "--out"]
    copied = [shutil.copytree(books, scratch / "copies" / str(number)) for number in range(args.copies)]
    copies = ["shards", "--documents", *copied, "--vocab", args.vocab, "--out"]
    rounds: list[dict[str, float]] = []
    peaks = []
    for number in range(args.rounds):
        one = timed_job(*command, scratch / f"one{number}")
        bare, bare_cpu = bare_seconds(sentences, processor)
        two = timed_job(*command, scratch / f"two{number}", ranks=2)
        long_one = timed_job(*copies, scratch / f"long_one{number}")
        long_two = timed_job(*copies, scratch / f"long_two{number}", ranks=2)
        runs = {"one": one, "two": two, "long_one": long_one, "long_two": long_two}
        seconds = {"bare": bare, "bare_cpu": bare_cpu} | {name: run.seconds for name, run in runs.items()}
        rounds.append(seconds | {f"{name}_cpu": run.cpu_seconds for name, run in runs.items()})
        peaks += [run.peak_bytes for run in runs.values()]
    packed = shards.open_shards(scratch / "one0").manifest
    job(*command, scratch / "unpacked", "--no-pack")
    unpacked = shards.open_shards(scratch / "unpacked").manifest

    dedup = {}
    for method in ("exact", "near"):
        begun = time.process_time()
        fingerprints_of(texts, method)
        dedup[method] = text_bytes / (time.process_time() - begun)
    peaks.append(job(*command, scratch / "near", "--dedup", "near").peak_bytes)
    parts = ["--held-out", 0.1, "--out", scratch / "parts"]
    job("extract", "--source", "books", "--input", args.books, *parts)
    split = ["shards", "--documents", scratch / "parts", "--vocab", args.vocab, "--out"]
    clean = [timed_job(*split, scratch / f"clean{number}").cpu_seconds for number in range(args.rounds)]
    kept = [timed_job(*split, scratch / f"kept{n}", "--keep-similar").cpu_seconds for n in range(args.rounds)]

    return {
        "prose": {"documents": len(texts), "text_bytes": text_bytes, "sentences": len(sentences)},
        "copies": args.copies,
        "wikitext": {"bytes": export.raw_bytes, "text_bytes": export.counts["train"].text_bytes},
        "rounds": rounds,
        "shards": text_bytes / statistics.median(r["one_cpu"] for r in rounds),
        "shards_long": args.copies * text_bytes / statistics.median(r["long_one_cpu"] for r in rounds),
        "bare": text_bytes / statistics.median(r["bare_cpu"] for r in rounds),
        "shards_to_bare": statistics.median(r["bare"] / r["one"] for r in rounds),
        "shards_to_bare_cpu": statistics.median(r["bare_cpu"] / r["one_cpu"] for r in rounds),
        "two_ranks_to_one": statistics.median(r["one"] / r["two"] for r in rounds),
        "two_ranks_to_one_long": statistics.median(r["long_one"] / r["long_two"] for r in rounds),
        "two_ranks_to_one_long_cpu": statistics.median(2 * r["long_one_cpu"] / r["long_two_cpu"] for r in rounds),
        "extract_books": prose.raw_bytes / extract_books.cpu_seconds,
        "extract_wikipedia": export.raw_bytes / extract_wikipedia.cpu_seconds,
        "dedup": dedup,
        "clean_share": statistics.median(1 - without / whole for whole, without in zip(clean, kept)),
        "verify": verify_rate(scratch / "one0", packed),
        "peak_bytes": {"shards": max(peaks), "extract": max(extract_books.peak_bytes, extract_wikipedia.peak_bytes)},
        "fill": {"packed": packed.counts.fill, "one pair a row": unpacked.counts.fill},
        "rows": {"packed": packed.counts.rows, "one pair a row": unpacked.counts.rows},
    }


def verify_rate(directory: Path, manifest: manifests.ShardManifest) -> float:
    """Bytes per second that `verify` reads from the page cache: the same files again and again, 1 GiB in all."""
    done = 0
    begun = time.process_time()
    for file in itertools.cycle(manifest.files):
        problem_of(directory, file, manifest)
        done += file.bytes
        if done >= VERIFIED_BYTES:
            return done / (time.process_time() - begun)
    raise AssertionError("a shard set has files")


def markdown(result: dict[str, Any]) -> str:
    """The measurements as tables."""
    hardware, prose = result["hardware"], result["prose"]
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    fill, peak, share = result["fill"], result["peak_bytes"], result.get("clean_share")  # new after the first pages
    rows = [
        ("SentencePiece alone, `encode(list)`", f"{result['bare'] / 1e6:.1f} MB/s"),
        (
            "`shards`, one rank",
            f"{result['shards'] / 1e6:.1f} MB/s, {result['shards_to_bare_cpu']:.2f} of that "
            f"(by the clock {result['shards_to_bare']:.2f})",
        ),
        ("`shards`, two ranks", f"{result['two_ranks_to_one']:.2f} times one by the clock"),
        (
            f"`shards` of the text {result['copies']} times over",
            f"{result['shards_long'] / 1e6:.1f} MB/s, {result['shards_long'] / result['bare']:.2f} of SentencePiece "
            f"alone; two ranks {result['two_ranks_to_one_long']:.2f} times one by the "
            f"clock, {result['two_ranks_to_one_long_cpu']:.2f} by processor time",
        ),
        ("`extract --source wikipedia`, one rank", f"{result['extract_wikipedia'] / 1e6:.1f} MB/s of XML"),
        ("`extract --source books`, one rank", f"{result['extract_books'] / 1e6:.1f} MB/s"),
        ("fingerprints of `--dedup exact`", f"{result['dedup']['exact'] / 1e6:.1f} MB/s"),
        ("fingerprints of `--dedup near`", f"{result['dedup']['near'] / 1e6:.1f} MB/s"),
        *([("comparison with held-out text", f"{share:.0%} of the time of `shards`")] if share else []),
        ("`verify`, one rank, from memory", f"{result['verify'] / 1e9:.1f} GB/s"),
        ("most memory of a rank of `shards`", f"{peak['shards'] / 2**20:.0f} MiB"),
        ("most memory of a rank of `extract`", f"{peak['extract'] / 2**20:.0f} MiB"),
        ("rows full", f"{fill['packed']:.2%}; with `--no-pack` {fill['one pair a row']:.2%}"),
        ("rows", f"{result['rows']['packed']:,}; with `--no-pack` {result['rows']['one pair a row']:,}"),
    ]
    lines = [
        f"{hardware['name']}, {hardware['cores']} cores, load {hardware['load']} before; {versions}; {result['date']}. "
        f"{prose['documents']} documents, {prose['text_bytes'] / 1e6:.1f} MB, {prose['sentences']:,} sentences; "
        f"an export of {result['wikitext']['bytes'] / 1e6:.1f} MB of XML.",
        "",
    ]
    return "\n".join([*lines, markdown_table(("", ""), rows)])


def parser() -> Parser:
    """The command line."""
    p = Parser(prog="python -m benchmarks.data_prep", description="Data preparation beside a bare SentencePiece.")
    p.add_argument("--books", required=True, type=Path, metavar="DIR", help="clean prose, a text file a book")
    p.add_argument("--wikipedia", required=True, type=Path, metavar="EXPORT", help=".xml or .xml.bz2, or a directory")
    p.add_argument("--vocab", required=True, type=Path, metavar="FILE", help="a .model file")
    p.add_argument("--rounds", type=int, default=3, metavar="N", help="(3)")
    p.add_argument(
        "--copies", type=int, default=12, metavar="N", help="of the books, to compare two ranks with one (12)"
    )
    p.add_argument("--out", type=Path, metavar="NAME", help="write NAME.json and NAME.md")
    return p


@entry_point
def main(argv: Sequence[str]) -> None:
    """Runs the command line."""
    args = parser().parse_all(argv)
    for name in ("rounds", "copies"):
        if getattr(args, name) < 1:
            raise UserError(f"--{name} is {getattr(args, name)}; give 1 or more")
    with tempfile.TemporaryDirectory() as scratch:
        host = report.describe_host("data_prep 5", ("sentencepiece", "numpy", "pyarrow", "rensa"))
        result = host | measure(args, Path(scratch))
    report.publish(args.out, result, markdown(result), f"Data preparation, {result['hardware']['name']}")


if __name__ == "__main__":
    sys.exit(main())
