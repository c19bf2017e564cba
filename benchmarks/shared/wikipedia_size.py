"""The serial parts of data preparation at the size of English Wikipedia: what one rank does while the others wait.

The documents are made on the fly: their lengths are log-normal, with the mean of Wikipedia's articles. Their text is
cut from a pool of random letters, which zstd makes half as large, about as it does with prose. Their fingerprints are
random, with a share of duplicates and one of look-alikes, which share keys of some bands with many others. Everything
else is what the jobs do, on the files that they would have. `extract` and `shards` are a process each.
"""

import argparse
import resource
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from common.files import owned
from data_prep.corpus import dedup
from data_prep.corpus.arrays import write_array
from data_prep.corpus.documents import TRAIN, Document, DocumentCounts, part_name, write_manifest, writing_part
from data_prep.corpus.fingerprints import BANDS, value_width
from data_prep.format import shards
from data_prep.jobs import extract, make_shards
from data_prep.mpi.executor import Ranks
from data_prep.mpi.ledger import Ledger, Record
from data_prep.sources.wikipedia import Wikipedia

# BERT used 2,500 million words of 5.7 million articles, without lists and tables (Devlin et al., section 3.1).
MEAN_BYTES, SIGMA = 2_700, 1.1
XML_PER_TEXT = 4.0  # bytes of an export for a byte of prose
XML_UNIT = 16 << 20
DUPLICATES, LOOK_ALIKES = 0.006, 0.1
TEMPLATES, SHARED_BANDS = 10_000, 3
POOL, LETTERS = 32 << 20, b"etaoinsrhldcu mp"
BYTES_PER_TOKEN, TOKENS_PER_PAIR = 4.6, 500
KEPT_OPTIONS = {"held_out": 0.0, "unit_megabytes": XML_UNIT >> 20}
HEAD = b'<mediawiki xml:lang="en"><siteinfo><sitename>Simulated</sitename></siteinfo>\n<page>'

Part = dict[str, Any]
"""A serial part: its name, seconds, processor seconds, and peak memory of its process so far in bytes."""


class _Stopwatch:
    """Collects the parts that one process measures."""

    def __init__(self) -> None:
        self.parts: list[Part] = []

    def time(self, name: str, function: Callable[[], Any]) -> Any:
        begun, cpu_begun = time.perf_counter(), time.process_time()
        result = function()
        self.parts.append(
            {
                "part": name,
                "seconds": time.perf_counter() - begun,
                "cpu_seconds": time.process_time() - cpu_begun,
                "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            }
        )
        return result


class _TimedRanks(Ranks):
    """One rank that measures each step of the search for duplicates.

    Of the pairs, which the ranks share, it does the first band. The planted duplicates agree in all bands, so the other
    bands get copies of its files.
    """

    names: ClassVar = {"begin": "dedup: begin", "group": "dedup: groups"}

    def __init__(self, watch: _Stopwatch, pairs: Path) -> None:
        super().__init__()
        self._watch, self._pairs = watch, pairs

    def on_root(self, function: Callable[[], Any]) -> Any:
        return self._watch.time(self.names[function.__name__], function)

    def run(self, units: Sequence[Any], work: Any, ledger: Any, *, sizes: Sequence[int], description: str) -> Any:
        step = super().run
        band = sum(1 for unit in units if unit[0] == 0) if description == "pairs" else len(units)
        records = self._watch.time(
            f"dedup: {description}",
            lambda: step(units[:band], work, ledger, sizes=sizes[:band], description=description),
        )
        for index in range(band, len(units)):
            shutil.copy(self._pairs / f"{index % band:06d}.npy", self._pairs / f"{index:06d}.npy")
        return records


def _texts(lengths: np.ndarray, rng: np.random.Generator, pool: str) -> Iterator[str]:
    places = rng.integers(0, len(pool) - int(lengths.max()), len(lengths))
    for place, length in zip(places.tolist(), lengths.tolist()):
        yield pool[place : place + length]


def write_documents(directory: Path, documents: int) -> list[Part]:
    """Makes the files of `extract`, and measures what it does before the first unit and after the last."""
    rng, watch = np.random.default_rng(0), _Stopwatch()
    lengths = np.maximum(rng.lognormal(np.log(MEAN_BYTES) - SIGMA**2 / 2, SIGMA, documents), 20).astype(np.int64)
    lengths = np.minimum(lengths, POOL // 2)
    export = directory.parent / "enwiki-simulated.xml"
    with export.open("wb") as file:
        file.write(HEAD)
        file.seek(int(XML_PER_TEXT * lengths.sum()))
        file.write(b"</mediawiki>")
    source = watch.time("extract: plan", lambda: Wikipedia([export], XML_UNIT))
    cuts = np.searchsorted(np.cumsum(lengths), np.arange(1, len(source.units)) * (lengths.sum() / len(source.units)))
    pool = rng.choice(np.frombuffer(LETTERS, np.uint8), POOL).tobytes().decode()
    directory.mkdir()
    records: list[Record] = []
    number = 0
    for index, part in enumerate(np.split(lengths, cuts)):
        with writing_part(directory / part_name(TRAIN, index)) as writer:
            for text in _texts(part, rng, pool) if len(part) else ():
                writer.add(Document(str(number), f"Article {number}", text))
                number += 1
        text_bytes = int(part.sum())
        counts = DocumentCounts(len(part), text_bytes // 6, text_bytes)
        files = [asdict(writer.file)] if writer.file is not None else []
        records.append({"counts": {TRAIN: asdict(counts)}, "skipped": {}, "raw_bytes": XML_UNIT, "files": files})
    watch.time("extract: documents.json", lambda: _write_documents_manifest(directory, source, records))
    export.unlink()
    return watch.parts


def _write_documents_manifest(directory: Path, source: Wikipedia, records: list[Record]) -> None:
    write_manifest(directory, extract.summarize("wikipedia", source.inputs, KEPT_OPTIONS, records))


def _write_fingerprints(comparison: dedup.Comparison, scratch: Path) -> None:
    """Writes what the ranks would: random fingerprints of every unit, as `dedup.find` continues from them."""
    rng = np.random.default_rng(1)
    ledger = Ledger(scratch / "fingerprints", content=True)
    owned.take_workplace(scratch, "data_prep shards --dedup")
    ledger.begin(dedup.identity_of(comparison, "near"))
    templates = rng.integers(0, 1 << 63, (TEMPLATES, BANDS), np.uint64)
    width = value_width("near")
    earlier: tuple[np.ndarray, np.ndarray] | None = None
    for index, unit in enumerate(comparison.units):
        count = unit.documents
        keys = rng.integers(0, 1 << 63, (BANDS, count), np.uint64)
        values = rng.integers(0, 1 << 16, (count, width), np.uint16)
        alike = np.flatnonzero(rng.random(count) < LOOK_ALIKES)
        kinds = rng.integers(0, TEMPLATES, len(alike))
        for _ in range(SHARED_BANDS):
            bands = rng.integers(0, BANDS, len(alike))
            keys[bands, alike] = templates[kinds, bands]
        if earlier is not None:
            copies = np.flatnonzero(rng.random(count) < DUPLICATES)
            of = rng.integers(0, len(earlier[1]), len(copies))
            keys[:, copies], values[copies] = earlier[0][:, of], earlier[1][of]
        earlier = keys, values
        arrays = {"keys": keys, "values": values, "sizes": np.full(count, MEAN_BYTES // 6, np.int64)}
        files = [write_array(ledger.output / f"{index:06d}.{name}.npy", array) for name, array in arrays.items()]
        ledger.write(index, {"files": files, "documents": count})


def make_shard_set(documents: Path, vocabulary: Path, out: Path) -> list[Part]:
    """Measures the serial parts of `shards --dedup near`; the shards themselves are not made."""
    watch = _Stopwatch()
    parser = argparse.ArgumentParser()
    make_shards.add_arguments(parser)
    words = ["--documents", documents, "--vocab", vocabulary, "--out", out, "--dedup", "near"]
    args = parser.parse_args(list(map(str, words)))
    plan = watch.time("shards: plan", lambda: make_shards.plan_job(args))
    ledger = Ledger(out, make_shards.ShardRecord)
    ledger.begin(plan.identity)
    scratch = make_shards.dedup_scratch(out)
    _write_fingerprints(plan.comparison, scratch)
    duplicates = dedup.find(_TimedRanks(watch, scratch / "pairs"), plan.comparison, "near", scratch)
    records = [_shard_record(index, unit.documents, unit.text_bytes) for index, unit in enumerate(plan.corpus.units)]
    watch.time("shards: duplicates.jsonl, manifest.json", lambda: make_shards.finish(out, plan, records, duplicates))
    return watch.parts


def _shard_record(index: int, documents: int, text_bytes: int) -> Record:
    """What a rank reports for a unit."""
    tokens = int(text_bytes / BYTES_PER_TOKEN)
    pairs = tokens // TOKENS_PER_PAIR + documents
    counts = dict.fromkeys(vars(shards.ShardCounts()), 0) | {
        "documents": documents,
        "sentences": tokens // 25,
        "pairs": pairs,
        "tokens": tokens,
        "rows": tokens // TOKENS_PER_PAIR + 1,
        "max_pairs_in_row": 8,
        "sentences_per_document": [documents // 8] * 8,
    }
    file = {"name": shards.shard_name(index), "bytes": 2 * tokens, "xxh3_128": f"{index:032x}", "rows": counts["rows"]}
    return counts | {"positions": tokens + 3 * pairs, "files": [file]}


def measure(documents: int, vocabulary: Path, scratch: Path) -> dict[str, Any]:
    """Returns the parts, in order, and the sizes of what they read."""
    corpus, out = scratch / "documents", scratch / "shards"
    parts: list[Part] = []
    for function, words in ((write_documents, (corpus, documents)), (make_shard_set, (corpus, vocabulary, out))):
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            parts += pool.submit(function, *words).result()
    return {
        "documents": documents,
        "files": sum(1 for _ in corpus.glob("*.parquet")),
        "text_bytes": shards.read_manifest(out).counts.tokens * BYTES_PER_TOKEN,
        "stored_bytes": sum(path.stat().st_size for path in corpus.iterdir()),
        "duplicates": sum(1 for _ in (out / shards.DUPLICATES).open("rb")),
        "parts": parts,
    }


def markdown(result: dict[str, Any]) -> str:
    """Returns the parts as a table."""
    hardware = result["hardware"]
    parallel = ("dedup: fingerprints", "dedup: pairs")
    serial = [part for part in result["parts"] if part["part"] not in parallel]
    notes = {
        "dedup: fingerprints": "; all were there: this is what continuing an interrupted job costs",
        "dedup: pairs": f", one of {BANDS} bands; the ranks share them",
    }
    return "\n".join(
        [
            f"{hardware['name']}, {hardware['cores']} cores, load {hardware['load']} before; {result['date']}. "
            f"{result['documents']:,} documents made on the fly in {result['files']:,} files, "
            f"{result['text_bytes'] / 1e9:.1f} GB of text, {result['stored_bytes'] / 1e9:.1f} GB on disk; "
            f"{result['duplicates']:,} are duplicates. Memory is the peak of the process up to the end of the part.",
            "",
            "| part | seconds | processor seconds | memory |",
            "|---|---|---|---|",
            *(
                f"| {part['part']}{notes.get(part['part'], '')} | {part['seconds']:.1f} | {part['cpu_seconds']:.1f} | "
                f"{part['peak_bytes'] / 2**20:,.0f} MiB |"
                for part in result["parts"]
            ),
            "",
            f"The serial parts take {sum(part['seconds'] for part in serial):.1f} s together.",
        ]
    )
