"""MediaWiki XML exports (https://dumps.wikimedia.org) -> articles in prose.

It reads `.xml` and `.xml.bz2`, with one stream or many. A work unit is a range of bytes of a file, and includes the
pages that begin in it. Pages are parsed one by one: only a broken page is lost, or the pages in a damaged bzip2 block.
"""

import bz2
import mmap
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree

from common.errors import UserError
from data_prep.corpus.documents import Document, spelled
from data_prep.sources import FileRange, Skipped, Source, find_files
from data_prep.wikitext import to_prose
from data_prep.wikitext.site import ENGLISH_SITE, Site, read_site

_MAX_HEAD_BYTES = 1 << 20  # the header before the first page has a few kB
_READ_BYTES = 1 << 20
_BZIP2_HEADER_BYTES = 4  # then comes the first block
_BZIP2_RATIO = 4  # wikitext shrinks to about a quarter
MAX_NESTING = 1000  # templates and links inside each other. Pages of Wikipedia have up to some dozens.
_NESTING = re.compile(r"\{\{|\}\}|\[\[|\]\]")
_PAGE, _PAGE_END = b"<page>", b"</page>"  # neither occurs inside a page, where "<" is "&lt;"
_EXPORT_NAME = re.compile(r"^(?!.*(?:-rss\.xml|\.sha1|\.md5)$).*(?:\.xml\b|\.bz2$)", re.DOTALL)
_INDEX_NAME = re.compile(r"-index\d*\.txt(-[^/]*)?(\.bz2)?$")
_BLOCK_MARK = 0x314159265359
_END_MARK = 0x177245385090
_MARK_BITS = 48
_TAIL_BYTES = 11  # the end mark, 32 bits of checksum, and padding to a whole byte
_PACKED = (b"\x1f\x8b", b"7z\xbc\xaf", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ", b"PK\3\4")  # gzip, 7z, zstd, xz, zip
_KIND = "MediaWiki export (.xml or .xml.bz2)"


class Wikipedia(Source):
    """A `Source`: the articles of exports, which are namespace 0 without redirects and disambiguation pages."""

    def __init__(self, paths: Sequence[Path], unit_bytes: int, language: str | None = None) -> None:
        """Checks the exports, or those in directories, and cuts them into units of so many bytes of XML.

        language: code of the language of all exports; by default what the header of each says.
        UserError: a path is not a complete export, or the exports are of several languages.
        """
        super().__init__()
        self._unit_bytes, self._language = unit_bytes, language
        self._sites: dict[Path, Site] = {}
        candidates = [file for path in paths for file in find_files(path, _EXPORT_NAME.search, _KIND)]
        files = [(path, name) for path, name in candidates if not _INDEX_NAME.search(name)]
        if not files:
            raise UserError(f"{candidates[0][0]} is the index of an export, which is not needed; give the export")
        self.plan(files)
        languages = {site.language: file for file, site in self._sites.items()}
        if len(languages) > 1:
            named = " and ".join(f"{file.name} ({code})" for code, file in sorted(languages.items())[:2])
            raise UserError(f"{named} are of different languages; extract each language into its own --out")
        (self.language,) = languages

    def plan_file(self, path: Path, name: str, size: int) -> None:
        """Cuts an export into ranges of bytes."""
        self._sites[path] = read_site(check_export(path), self._language)
        step = max(1, self._unit_bytes // _BZIP2_RATIO if is_bzip2(path) else self._unit_bytes)
        for at in range(0, size, step):
            self.add(FileRange(path, name, at, min(at + step, size)), min(step, size - at))

    def read(self, unit: FileRange) -> Iterator[Document | Skipped]:
        """Yields the articles among the pages that begin in the range."""
        for number, raw in enumerate(raw_pages(unit)):
            if isinstance(raw, int):
                yield Skipped(f"{spelled(unit.path.name)} near byte {raw}", "damaged block")
                continue
            self.consumed += len(raw)
            try:
                items = list(article(parse_page(raw), self._sites[unit.path]))
            # No error in one page of millions may end the job. The page is counted and named.
            except Exception as error:
                title = re.search(rb"<title>([^<]*)</title>", raw)
                name = title[1].decode(errors="replace") if title else f"page {number} after byte {unit.begin}"
                items = [Skipped(name, f"broken ({type(error).__name__})")]
            yield from items


def is_bzip2(path: Path) -> bool:
    """Tells whether a file is compressed, by its first bytes."""
    with path.open("rb") as file:
        return file.read(3) == b"BZh"


def check_export(path: Path) -> bytes:
    """Returns the header of an export: what is before its first page. UserError: it is none, or is not complete."""
    bzip2 = Bzip2File(path) if path.suffix == ".bz2" or is_bzip2(path) else None
    head = b""
    for position, content in chunks(path, 0, bzip2):
        # The mark of the first block may be damaged. Then the first that is found is a later one.
        if content is None or (bzip2 is not None and not head and position > _BZIP2_HEADER_BYTES):
            break
        head += content
        if _PAGE in head or len(head) > _MAX_HEAD_BYTES:
            break
    head = head.partition(_PAGE)[0]
    if b"<mediawiki" not in head:
        reason = "damaged at its start; download it again" if bzip2 and not head else "no MediaWiki export"
        reason = "packed in another way than bzip2; unpack it" if head.startswith(_PACKED) else reason
        raise UserError(f"{path} is {reason}; check --source, or leave it out of --input")
    tail = b"".join(content or b"" for _, content in chunks(path, max(0, path.stat().st_size - (2 << 20)), bzip2))
    if not tail.rstrip().endswith(b"</mediawiki>"):
        raise UserError(f"{path} is cut off or damaged: it does not end with </mediawiki>; download it again")
    return head


def chunks(path: Path, start: int, bzip2: "Bzip2File | None") -> Iterator[tuple[int, bytes | None]]:
    """Yields (byte where it begins, decompressed content or None: damaged) of the chunks from byte `start` on."""
    if bzip2 is not None:
        yield from bzip2.blocks(start)
        return
    with path.open("rb") as file:
        file.seek(start)
        while content := file.read(_READ_BYTES):
            yield start, content
            start += len(content)


def raw_pages(unit: FileRange) -> Iterator[bytes | int]:
    """Yields the `<page>...</page>` elements that begin in the range, as bytes, with one in memory at a time.

    In a .bz2 file, a page belongs to the bzip2 block that contains the page's first byte. A block, even a damaged one,
    belongs to the range that contains the block's first byte. If a page has no end, because a damaged block or another
    page follows, its beginning is yielded. Of a damaged block, the byte where it begins is yielded.
    """
    bzip2 = Bzip2File(unit.path) if is_bzip2(unit.path) else None
    buffer = b""  # what was read and is not yielded or skipped yet; at most the beginning of a page after each chunk
    owned = 0  # number of bytes at the start of the buffer that belong to this range; a page that begins there is ours
    for position, content in chunks(unit.path, unit.begin, bzip2):
        if content is None:
            if owned > 0 and buffer.startswith(_PAGE):
                yield buffer  # the page continues in the damaged block
            buffer, owned = b"", 0
            if position >= unit.end:
                return
            yield position
            continue
        if position < unit.end:
            own = len(content) if bzip2 is not None else min(len(content), unit.end - position)
            owned = len(buffer) + own
        elif owned <= 0:  # no page of ours is waiting for its end
            return
        buffer += content
        used = 0  # bytes of the buffer that are yielded or skipped
        while 0 <= (begin := buffer.find(_PAGE, used)) < owned and (end := _page_end(buffer, begin)):
            yield buffer[begin:end]
            used = end
        if begin >= owned:
            return
        # The rest is the beginning of a page, or at most of "<page>".
        used = begin if begin >= 0 else max(used, len(buffer) - len(_PAGE) + 1)
        buffer, owned = buffer[used:], owned - used
    if 0 <= (begin := buffer.find(_PAGE)) < owned:
        yield buffer[begin:]


def _page_end(buffer: bytes, begin: int) -> int:
    """Where the page that begins at `begin` ends: behind </page>, or before the next <page>. 0 if it goes on."""
    end = buffer.find(_PAGE_END, begin)
    following = buffer.find(_PAGE, begin + len(_PAGE), end if end >= 0 else len(buffer))
    if following >= 0:
        return following
    return end + len(_PAGE_END) if end >= 0 else 0


def parse_page(raw: bytes) -> ElementTree.Element:
    """Parses one `<page>` element, which cannot declare entities. ElementTree.ParseError: it is not well-formed.

    Of a page with its history only the newest revision stays: the last one of the latest timestamp.
    """
    page = ElementTree.fromstring(raw)
    revisions = page.findall("revision")
    for revision in sorted(revisions, key=lambda revision: revision.findtext("timestamp", ""))[:-1]:  # a stable sort
        page.remove(revision)
    return page


def is_nested_too_deeply(text: str) -> bool:
    """Whether so many templates or links begin inside others that the time to render them would have no bound."""
    depth = 0
    for mark in _NESTING.finditer(text) if text.count("{{") + text.count("[[") > MAX_NESTING else ():
        depth = depth + 1 if mark[0] in ("{{", "[[") else max(0, depth - 1)
        if depth > MAX_NESTING:
            return True
    return False


def article(page: ElementTree.Element, site: Site = ENGLISH_SITE) -> Iterator[Document | Skipped]:
    """Yields the prose of a `<page>` of a wiki as a document, or why it has none, and what was lost of it."""
    title, namespace = page.findtext("title", ""), page.findtext("ns", "")
    wikitext = page.findtext("revision/text", "")
    reason = None
    if not site.has_article(title, namespace):
        reason = "not an article"
    elif page.find("redirect") is not None or site.redirect.match(wikitext):
        reason = "redirect"
    elif page.findtext("revision/model", "wikitext") != "wikitext":
        reason = "not wikitext"
    elif site.lists_meanings(title, wikitext):
        reason = "disambiguation page"
    elif is_nested_too_deeply(wikitext):
        reason = "nested too deeply"
    losses = [reason] if reason else []
    if reason is None:
        text = to_prose(wikitext, site, losses)
        if text:
            yield Document(page.findtext("id", ""), title, text)
        else:
            losses.append("no prose")
    for loss in losses:
        yield Skipped(title, loss)


class Bzip2File:
    """Random access to a .bz2 file, so that many ranks can read it. UserError: it is none, or its end is missing.

    A bzip2 stream is a sequence of blocks of at most 900 kB, which can be decompressed one by one. Each begins with a
    48-bit mark, at any bit; another mark ends the stream. A search for the marks gives positions to start at, in files
    of one stream or many. So the index of a multistream export is not needed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            if file.read(3) != b"BZh":
                raise UserError(f"{path} is not a bzip2 file; give the export as it was downloaded")
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.size = len(self._data)
        if not any(kind == _END_MARK for _, kind in self._marks(self.size - _TAIL_BYTES, self.size)):
            raise UserError(f"{path} is cut off: its last bzip2 block has no end; download it again")

    def blocks(self, start: int) -> Iterator[tuple[int, bytes | None]]:
        """Yields (byte where it begins, decompressed bytes) of each block that begins at byte `start` or later.

        The decompressed bytes are None if the block is damaged. If a mark is damaged, two blocks count as one. The bits
        of a mark also occur by chance inside a block, once in 10^14 bits; that block counts as two damaged ones.
        """
        position = self._next_mark(start * 8)
        while position is not None:
            bit, kind = position
            following = self._next_mark(bit + _MARK_BITS)
            if kind == _BLOCK_MARK:
                yield bit // 8, self._decompress(bit, following[0]) if following else None
            position = following

    def _decompress(self, begin: int, end: int) -> bytes | None:
        """Decompresses the block between two bit positions as a stream of its own; None if it is not a block."""
        first, last = begin // 8, -(-end // 8)
        bits = int.from_bytes(self._data[first:last], "big") >> (last * 8 - end)
        length = end - begin
        bits &= (1 << length) - 1
        checksum = (bits >> (length - _MARK_BITS - 32)) & 0xFFFFFFFF if length > 80 else 0
        bits = (bits << 80) | (_END_MARK << 32) | checksum
        length += 80
        padding = -length % 8
        stream = b"BZh9" + (bits << padding).to_bytes((length + padding) // 8, "big")
        try:
            return bz2.decompress(stream)
        except (OSError, ValueError):
            return None

    def _next_mark(self, bit: int) -> tuple[int, int] | None:
        """Returns the first mark at `bit` or later as (its bit, which mark); None if there is none."""
        first = bit // 8
        # The first search is short, because most blocks are far smaller than the largest.
        begin, reach = first, 256 << 10
        while begin < self.size:
            marks = [mark for mark in self._marks(begin, begin + reach) if mark[0] >= bit]
            if marks:
                return marks[0]
            begin += reach - 8
        return None

    def _marks(self, begin: int, end: int) -> list[tuple[int, int]]:
        """Returns all marks that are entirely between two bytes, in order, as (bit in the file, which mark).

        A mark of 48 bits at bit `shift` of a byte reaches into seven bytes. The five in the middle are all its own, so
        `bytes.find` finds them. Of the first byte the low bits are its own, of the last one the high bits.
        """
        begin, end = max(begin, 0), min(end, self.size)
        window = self._data[begin:end] + b"\0"  # a mark at bit 0 has no seventh byte, and may end the window
        marks = []
        for mark in (_BLOCK_MARK, _END_MARK):
            for shift in range(8):
                first, *middle, last = (mark << (8 - shift)).to_bytes(7, "big")
                low_bits, high_bits = 0xFF >> shift, 0xFF00 >> shift & 0xFF
                at = 0
                while (at := window.find(bytes(middle), at + 1)) > 0:
                    is_inside = at + 5 < end - begin + (shift == 0)
                    if is_inside and window[at - 1] & low_bits == first and window[at + 5] & high_bits == last:
                        marks.append(((begin + at - 1) * 8 + shift, mark))
        return sorted(marks)
