"""MediaWiki XML exports (https://dumps.wikimedia.org) -> articles in prose.

Reads `.xml` and `.xml.bz2`, of one stream or many. A unit is a range of the file; it owns the pages that begin in it.
Each page is parsed by itself, so a broken one costs nothing but itself, and a damaged block of a .bz2 file nothing but
the pages that stand in it.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from xml.parsers import expat

from data_prep.documents import Document, spelled
from data_prep.errors import UserError
from data_prep.sources import Skipped, Source
from data_prep.sources.bzip2 import Bzip2File
from data_prep.wikitext import to_prose

_HEAD_BYTES = 1 << 20  # the description of the wiki before the first page is a few kB
_READ_BYTES = 1 << 20
_BZIP2_RATIO = 4  # wikitext shrinks to about a quarter
_PAGE, _PAGE_END = b"<page>", b"</page>"  # nothing inside a page can look like these: there "<" is "&lt;"
_INDEX_NAME = re.compile(r"-index\d*\.txt(-[^/]*)?(\.bz2)?$")
_DISAMBIGUATION = re.compile(
    r"\{\{\s*(?:[^{}|\n]*\bdisambig(?:uation)?(?: page| cleanup)?|dab|geodis|hndis|numberdis|letter-numbercombdis"
    r"|mil-unit-dis|letter disambig|schooldis|airport dis|call ?sign dis|roaddis|hospitaldis)\s*(?:\||\}\})",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Range:
    """Bytes [begin, end) of a file."""

    path: Path
    begin: int
    end: int


@dataclass(frozen=True)
class Damage:
    """A stretch of a .bz2 file, from this byte on, that cannot be decompressed."""

    byte: int


@dataclass
class Page:
    """One page of an export, as far as it matters here. timestamp: of its text, in ISO 8601."""

    title: str = ""
    namespace: str = ""
    id: str = ""
    model: str = "wikitext"
    text: str = ""
    timestamp: str = ""
    is_redirect: bool = False


class Wikipedia(Source):
    """The articles of one or more exports: namespace 0 without redirects and disambiguation pages. A `Source`."""

    def __init__(self, paths: Sequence[Path], unit_bytes: int) -> None:
        """`unit_bytes` of XML make a unit. UserError: a path is not a whole export."""
        super().__init__()
        files = [file for path in paths for file in export_files(path)]
        if not files:
            raise UserError(f"{paths[0]} is the index of an export, which is not needed; give the export itself")
        for file in files:
            check_export(file)
            size = self.add_file(file, spelled(file.name))
            step = max(1, unit_bytes // _BZIP2_RATIO if is_bzip2(file) else unit_bytes)
            for at in range(0, size, step):
                self.add(Range(file, at, min(at + step, size)), min(step, size - at))

    def read(self, unit: Range) -> Iterator[Document | Skipped]:
        """The articles among the pages that begin in the range."""
        for number, raw in enumerate(raw_pages(unit)):
            if isinstance(raw, Damage):
                yield Skipped(f"{spelled(unit.path.name)} near byte {raw.byte}", "damaged block")
                continue
            self.consumed += len(raw)
            try:
                item = article(parse_page(raw))
            # Whatever is wrong with one page of millions must not end the job: it is counted and named.
            except Exception as error:
                title = re.search(rb"<title>([^<]*)</title>", raw)
                name = title[1].decode(errors="replace") if title else f"page {number} after byte {unit.begin}"
                item = Skipped(name, f"broken ({type(error).__name__})")
            yield item


def export_files(path: Path) -> list[Path]:
    """The exports that `path` means: itself, or the .xml and .xml.bz2 files of a directory. Indexes are left out."""
    if not path.exists():
        raise UserError(f"{path} does not exist; give a MediaWiki export (.xml or .xml.bz2) or a directory of them")
    if not path.is_dir():
        return [] if _INDEX_NAME.search(path.name) else [path]
    found = sorted(f for f in path.iterdir() if f.is_file() and re.search(r"\.xml\b.*$|\.bz2$", f.name))
    files = [file for file in found if not _INDEX_NAME.search(file.name)]
    if not files:
        raise UserError(f"{path} holds no MediaWiki export; give a .xml or .xml.bz2 file, or a directory of them")
    return files


def is_bzip2(path: Path) -> bool:
    """Whether a file is compressed, by its first bytes."""
    with path.open("rb") as file:
        return file.read(3) == b"BZh"


def check_export(path: Path) -> None:
    """UserError unless the file begins as a MediaWiki export does, declares no DTD, and is whole."""
    bzip2 = Bzip2File(path) if path.suffix == ".bz2" or is_bzip2(path) else None
    head = b""
    for _, content in chunks(path, 0, bzip2):
        head += content or b""
        if content is None or _PAGE in head or len(head) > _HEAD_BYTES:
            break
    head = head.partition(_PAGE)[0]
    # MediaWiki writes no document type, and one can make a parser read other files or expand without end.
    if b"<!DOCTYPE" in head or b"<!ENTITY" in head:
        raise UserError(
            f"{path} declares a document type, which no MediaWiki export does; give the export as downloaded"
        )
    if b"<mediawiki" not in head:
        raise UserError(f"{path} is not a MediaWiki export (no <mediawiki> at its start); check --source and --input")
    size = path.stat().st_size
    tail = b"".join(content or b"" for _, content in chunks(path, max(0, size - (2 << 20)), bzip2))
    if not tail.rstrip().endswith(b"</mediawiki>"):
        raise UserError(f"{path} is cut off or damaged: it does not end with </mediawiki>; download it again")


def chunks(path: Path, start: int, bzip2: Bzip2File | None) -> Iterator[tuple[int, bytes | None]]:
    """Yields (byte of the file where it begins, decompressed content) from the first chunk at or after `start` on; None
    for what cannot be decompressed."""
    if bzip2 is not None:
        yield from bzip2.blocks(start)
        return
    with path.open("rb") as file:
        file.seek(start)
        while content := file.read(_READ_BYTES):
            yield start, content
            start += len(content)


def raw_pages(unit: Range) -> Iterator[bytes | Damage]:
    """The `<page>...</page>` elements that begin in the range, as bytes, with one of them in memory at a time.

    A page begins where its first byte stands. In a .bz2 file that byte belongs to the bzip2 block that holds it, and
    the block to the range that holds the block's first byte; so does a block that is damaged. A page without its end,
    cut by a damaged block or followed by another page, comes as far as it goes.
    """
    bzip2 = Bzip2File(unit.path) if is_bzip2(unit.path) else None
    buffer, used = b"", 0  # how many bytes of the buffer are done with
    owned = 0  # how many bytes of the buffer, from its first on, belong to this range
    for position, content in chunks(unit.path, unit.begin, bzip2):
        buffer, owned, used = buffer[used:], owned - used, 0
        if content is None:
            if owned > 0 and buffer.startswith(_PAGE):
                yield buffer
            buffer, owned = b"", 0
            if position >= unit.end:
                return
            yield Damage(position)
            continue
        if position < unit.end:
            own = len(content) if bzip2 is not None else min(len(content), unit.end - position)
            owned = len(buffer) + own
        elif owned <= 0:
            return
        buffer += content
        while True:
            begin = buffer.find(_PAGE, used)
            if begin >= owned:
                return
            if begin < 0:  # keep only what can be the start of "<page>"
                used = max(used, len(buffer) - len(_PAGE) + 1)
                break
            used = begin
            end = buffer.find(_PAGE_END, begin)
            following = buffer.find(_PAGE, begin + len(_PAGE), end if end >= 0 else len(buffer))
            if following < 0 and end < 0:
                break
            used = following if following >= 0 else end + len(_PAGE_END)
            yield buffer[begin:used]
    if 0 <= (begin := buffer.find(_PAGE, used)) < owned:
        yield buffer[begin:]


def parse_page(raw: bytes) -> Page:
    """Reads one `<page>` element, in which no entity can be declared. expat.ExpatError: it is not well-formed."""
    page = Page()
    path: list[str] = []
    pieces: list[str] = []

    def start(name: str, attributes: dict[str, str]) -> None:
        path.append(name)
        pieces.clear()
        if name == "redirect":
            page.is_redirect = True

    def end(name: str) -> None:
        where = "/".join(path)
        path.pop()
        field = _FIELDS.get(where)
        if field:
            setattr(page, field, "".join(pieces))
        pieces.clear()

    parser = expat.ParserCreate("utf-8")
    parser.buffer_text = True
    parser.buffer_size = 1 << 16
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = pieces.append
    parser.Parse(raw, True)
    return page


_FIELDS = {
    "page/title": "title",
    "page/ns": "namespace",
    "page/id": "id",
    "page/revision/model": "model",
    "page/revision/text": "text",
    "page/revision/timestamp": "timestamp",
}


def saved_on(page: Page) -> date | None:
    """The day on which a page's text was saved, where the export says so."""
    try:
        return date.fromisoformat(page.timestamp[:10])
    except ValueError:
        return None


def article(page: Page) -> Document | Skipped:
    """A page's prose, or why it has none."""
    reason = None
    if page.namespace not in ("0", "") or (not page.namespace and ":" in page.title):
        reason = "not an article"
    elif page.is_redirect or page.text.lstrip()[:9].lower() == "#redirect":
        reason = "redirect"
    elif page.model != "wikitext":
        reason = "not wikitext"
    elif page.title.endswith("(disambiguation)") or _DISAMBIGUATION.search(page.text):
        reason = "disambiguation page"
    if reason is None:
        text = to_prose(page.text, saved_on(page))
        if text:
            return Document(page.id, page.title, text)
        reason = "no prose"
    return Skipped(page.title, reason)
