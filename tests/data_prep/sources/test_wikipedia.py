"""Exports: which pages become documents, with any work units, and messages for files that are no exports."""

import bz2
import gzip
import random
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.errors import UserError
from data_prep.corpus.documents import Document
from data_prep.sources import Skipped
from data_prep.sources.wikipedia import MAX_NESTING, Wikipedia, article, parse_page
from tests.data_prep.corpora import read_all

HEAD = '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11">\n  <siteinfo></siteinfo>\n'
TAIL = "</mediawiki>\n"


def page(number: int, title: str, text: str, namespace: int = 0, redirect: str = "", model: str = "wikitext") -> str:
    """Returns one page as MediaWiki writes it; `text` is XML already."""
    target = f'    <redirect title="{redirect}" />\n' if redirect else ""
    return (
        f"  <page>\n    <title>{title}</title>\n    <ns>{namespace}</ns>\n    <id>{number}</id>\n{target}"
        f"    <revision>\n      <id>9{number}</id>\n      <contributor><id>7</id></contributor>\n"
        f'      <model>{model}</model>\n      <text xml:space="preserve">{text}</text>\n    </revision>\n  </page>\n'
    )


def export(*pages: str) -> str:
    return HEAD + "".join(pages) + TAIL


WHOLE = export(page(1, "A", "It is.")).encode()


def read(path: Path, unit_bytes: int = 16 << 20) -> list[Document | Skipped]:
    return read_all(Wikipedia([path], unit_bytes))


def test_articles_are_kept_and_the_rest_is_counted(tmp_path: Path) -> None:
    cases = (
        (page(1, "A &amp; B", "'''A''' &lt;b&gt;is&lt;/b&gt; a &amp;amp; b."), Document("1", "A & B", "A is a & b.")),
        (page(2, "Moved", "#REDIRECT [[A]]", redirect="A"), Skipped("Moved", "redirect")),
        (page(3, "Talk:A", "It is talk.", namespace=1), Skipped("Talk:A", "not an article")),
        (page(4, "C", "C may be one of these.\n{{disambiguation}}"), Skipped("C", "disambiguation page")),
        (page(5, "D (disambiguation)", "D may be many."), Skipped("D (disambiguation)", "disambiguation page")),
        (page(6, "Data", "{}", model="json"), Skipped("Data", "not wikitext")),
        (page(7, "Boxes", "{{Infobox|a=b}}"), Skipped("Boxes", "no prose")),
        (page(8, "Broken &nbsp; page", "It is text."), Skipped("Broken &nbsp; page", "broken (ParseError)")),
        (page(9, "Broken too", "It is <b>text."), Skipped("Broken too", "broken (ParseError)")),
        (page(10, "Last", "It is last."), Document("10", "Last", "It is last.")),
        (page(11, "Old", "#redirect [[A]]"), Skipped("Old", "redirect")),
        (page(12, "E", "It is.\n{|\n| Lost.\n== H ==\nIt goes on."), Document("12", "E", "It is.\nIt goes on.")),
        ("", Skipped("E", "unclosed table")),
        (page(13, "Lost", "{|\n| A table without its end."), Skipped("Lost", "unclosed table")),
        ("", Skipped("Lost", "no prose")),
    )
    pages, items = zip(*cases)
    (tmp_path / "wiki.xml").write_text(export(*pages))
    assert read(tmp_path / "wiki.xml") == list(items)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_of_a_history_the_newest_revision_counts(tmp_path: Path, order: tuple[int, ...]) -> None:
    """By its timestamp, whatever the order, and with its own model."""
    texts = {
        "2009-12-31": "It was a draft.",
        "2010-01-02": "#REDIRECT [[A]]",
        "2021-03-04": "It was an article.",
    }
    revisions = [
        f"<revision><timestamp>{day}T10:00:00Z</timestamp><model>wikitext</model><text>{text}</text></revision>"
        for day, text in texts.items()
    ]
    head = "<page><title>A</title><ns>0</ns><id>1</id>"
    (tmp_path / "wiki.xml").write_text(export(head + "".join(revisions[number] for number in order) + "</page>"))
    assert read(tmp_path / "wiki.xml") == [Document("1", "A", "It was an article.")]


@settings(max_examples=30)
@given(sizes=st.lists(st.integers(0, 400), min_size=1, max_size=12), unit_bytes=st.integers(1, 3000))
def test_every_page_belongs_to_one_unit(tmp_path_factory, sizes, unit_bytes):
    path = tmp_path_factory.mktemp("export") / "wiki.xml"
    path.write_text(export(*(page(i, f"T{i}", "It is a word. " * size + "It is.") for i, size in enumerate(sizes))))
    found = [item.id for item in read(path, unit_bytes) if isinstance(item, Document)]
    assert found == [str(i) for i in range(len(sizes))]


@pytest.mark.parametrize("streams", [1, 7])
def test_compressed_exports_cut_anywhere(tmp_path: Path, streams: int) -> None:
    pages = [page(i, f"T{i}", " ".join(f"It is the number {i * k}." for k in range(450))) for i in range(60)]
    text = export(*pages).encode()
    step = -(-len(text) // streams)
    compressed = b"".join(bz2.compress(text[at : at + step], 1) for at in range(0, len(text), step))
    path = tmp_path / "wiki-multistream.xml.bz2"
    path.write_bytes(compressed)
    whole = read(path)
    assert len(whole) == 60
    for unit_bytes in (4, 20_000, 200_000):
        assert read(path, max(unit_bytes, len(compressed) // 50)) == whole


def test_a_page_without_its_end_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "wiki.xml"
    broken = page(2, "Broken", "It is cut").partition("</text>")[0]
    path.write_text(export(page(1, "A", "It is one."), broken, page(3, "C", "It is three."), broken, broken))
    lost = Skipped("Broken", "broken (ParseError)")
    expected = [Document("1", "A", "It is one."), lost, Document("3", "C", "It is three."), lost, lost]
    for unit_bytes in (1 << 20, 200, 1):
        assert read(path, unit_bytes) == expected


def long_pages(count: int) -> list[str]:
    """Pages of about 40 kB, so that a block of bz2's level 1 holds about two of them."""
    words = random.Random(0)
    return [page(i, f"T{i}", " ".join(f"It is {words.getrandbits(60)}." for _ in range(1500))) for i in range(count)]


@pytest.mark.parametrize("zeros", [None, 1, 60_000])
def test_a_damaged_block_costs_the_pages_in_it_and_is_named(tmp_path: Path, zeros: int | None) -> None:
    pages = long_pages(24)
    path = tmp_path / "wiki.xml.bz2"
    content = bytearray(bz2.compress(export(*pages).encode(), 1))
    whole = written(path, content)
    if zeros is None:  # in the first block; at 4 is its mark
        for place in (4, 40):
            damaged = content[:place] + bytes([content[place] ^ 0x5A]) + content[place + 1 :]
            with pytest.raises(UserError, match=r"wiki\.xml\.bz2 is damaged at its start; download it again"):
                written(path, damaged)
        return
    middle = len(content) // 2
    content[middle : middle + zeros] = bytes(byte ^ 0x5A for byte in content[middle : middle + zeros])
    items = written(path, content)
    kept = [item for item in items if isinstance(item, Document)]
    assert 24 - 5 - zeros // 10_000 < len(kept) < 24
    assert kept == [item for item in whole if item in kept]
    assert (kept[0].id, kept[-1].id) == ("0", "23")
    skipped = [item for item in items if isinstance(item, Skipped)]
    assert [item.reason for item in skipped][:2] == ["broken (ParseError)", "damaged block"]  # the page that it cut
    assert skipped[0].name == f"T{kept.index(next(d for n, d in enumerate(kept) if d.id != str(n)))}"
    place = re.fullmatch(r"wiki\.xml\.bz2 near byte (\d+)", skipped[1].name)
    assert place
    assert abs(int(place[1]) - middle) < 100_000
    assert read(path, len(content) // 5) == items


def written(path: Path, content: bytes) -> list[Document | Skipped]:
    path.write_bytes(content)
    return read(path)


def test_directories_and_indexes(tmp_path: Path) -> None:
    for name, number in (("b.xml", 2), ("a.xml.bz2", 1)):
        text = export(page(number, f"T{number}", "It is one page.")).encode()
        (tmp_path / name).write_bytes(bz2.compress(text) if name.endswith("bz2") else text)
    (tmp_path / "a-multistream-index.txt.bz2").write_bytes(bz2.compress(b"600:1:T1\n"))
    index = tmp_path / "a-multistream-index.txt.bz2"
    one_by_one = Wikipedia([index, tmp_path / "a.xml.bz2", tmp_path / "b.xml"], 1 << 20)  # as a shell's * gives them
    source = Wikipedia([tmp_path], 1 << 20)
    assert source.inputs == one_by_one.inputs
    assert [entry["name"] for entry in source.inputs] == ["a.xml.bz2", "b.xml"]
    with pytest.raises(UserError, match="is the index of an export, which is not needed"):
        Wikipedia([index], 1 << 20)
    assert [item.id for item in read_all(source) if isinstance(item, Document)] == ["1", "2"]


def test_feeds_and_checksums_beside_a_dump_are_left_out(tmp_path, capsys):
    for name in ("a.xml.bz2-rss.xml", "a.xml.bz2.sha1", "a.xml.bz2.md5", "sums.txt"):
        (tmp_path / name).write_text("<rss/>")
    (tmp_path / "a.xml").write_bytes(WHOLE)
    (tmp_path / "a.xml-p1p20.bz2").write_bytes(bz2.compress(WHOLE))
    assert [entry["name"] for entry in Wikipedia([tmp_path], 1 << 20).inputs] == ["a.xml", "a.xml-p1p20.bz2"]
    assert "are not read (4, such as a.xml.bz2-rss.xml)" in capsys.readouterr().out


BOMB = '<!DOCTYPE a [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]>'


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.xml", b"<html><body>It is a page.</body></html>", "is no MediaWiki export"),
        ("a.xml.gz", gzip.compress(WHOLE), "is packed in another way than bzip2; unpack"),
        ("a.xml.7z", b"7z\xbc\xaf\x27\x1c" + bytes(99), "is packed in another way than bzip2; unpack"),
        ("a.xml", WHOLE.removesuffix(TAIL.encode()), "is cut off"),
        ("a.xml.bz2", bz2.compress(WHOLE)[:-5], "is cut off"),
        ("a.xml.bz2", bz2.compress(WHOLE.removesuffix(TAIL.encode())), "is cut off"),
        ("a.xml.bz2", WHOLE, "is not a bzip2 file"),
    ],
)
def test_what_is_no_export_is_named(tmp_path: Path, name: str, content: bytes, reason: str) -> None:
    with pytest.raises(UserError, match=rf"{re.escape(name)} {reason}"):
        written(tmp_path / name, content)


def test_a_document_type_inside_a_page_is_an_error_of_that_page(tmp_path: Path) -> None:
    path = tmp_path / "wiki.xml"
    bombs = [page(1, "First", f"It is {BOMB} &b;."), page(3, "Third", "It is &b;.").replace("<page>", f"<page>{BOMB}")]
    path.write_text(BOMB + export(bombs[0], page(2, "Second", "It is text."), bombs[1]))
    assert read(path) == [
        Skipped("First", "broken (ParseError)"),
        Document("2", "Second", "It is text."),
        Skipped("Third", "broken (ParseError)"),
    ]


OLD_HEAD = (
    '<mediawiki version="0.3" xml:lang="de"><siteinfo><sitename>W</sitename><namespaces>'
    '<namespace key="-1">Spezial</namespace><namespace key="0" /><namespace key="1">Diskussion</namespace>'
    '<namespace key="3">Benutzer_Diskussion</namespace><namespace key="4">Wikipedia</namespace>'
    "</namespaces></siteinfo>"
)


@pytest.mark.parametrize(
    ("title", "is_article"),
    [
        *(("Berlin", True), ("Diskussion", True), ("Star Trek: Enterprise", True), ("2001: Odyssee", True)),
        *((":Ding", True), ("Diskussion:Berlin", False), ("diskussion:Berlin", False), ("Wikipedia:Hilfe", False)),
        *(("Benutzer Diskussion:A", False), ("Spezial:B", False), ("Wikipedia : Hilfe", False)),
    ],
)
def test_an_old_export_names_no_namespace_but_its_header_does(tmp_path: Path, title: str, is_article: bool) -> None:
    page = f"<page><title>{title}</title><id>1</id><revision><text>Abc def ghi jkl mno.</text></revision></page>"
    (tmp_path / "a.xml").write_text(f"{OLD_HEAD}{page}</mediawiki>")
    (item,) = read(tmp_path / "a.xml")
    assert item == (Document("1", title, "Abc def ghi jkl mno.") if is_article else Skipped(title, "not an article"))


@pytest.mark.parametrize("mark", ["{{a|", "[[a|", "{{a|[[b|"])
def test_a_page_that_is_nested_without_end_is_skipped(mark: str) -> None:
    def page(count: int) -> ElementTree.Element:
        text = f"<title>A</title><revision><text>{mark * count}It is one.</text></revision>"
        return parse_page(f"<page>{text}</page>".encode())

    deep = MAX_NESTING // len(re.findall(r"\{\{|\[\[", mark))
    assert [*article(page(deep + 1))] == [Skipped("A", "nested too deeply")]
    assert Skipped("A", "nested too deeply") not in article(page(deep))
