"""Pages of wikis in other languages become prose as English ones do."""

import tomllib
from pathlib import Path

import pytest

from common.errors import UserError
from data_prep.corpus.documents import Document
from data_prep.sources import Skipped
from data_prep.sources.wikipedia import Wikipedia
from data_prep.wikitext import to_prose
from data_prep.wikitext.site import grouped, read_site, site_of
from data_prep.wikitext.tags import choose_variants
from tests.data_prep import foreign_pages
from tests.data_prep.foreign_pages import WIKIS, Wiki

RENDERED = tomllib.loads(Path(__file__).with_name("rendered.toml").read_text(encoding="utf-8"))
ABC = "Abc def ghi jkl."
IDS = [wiki.language for wiki in WIKIS]


def joined(sentences: tuple[str, ...]) -> str:
    return "".join("".join(sentences).split())


@pytest.mark.parametrize("wiki", WIKIS, ids=IDS)
def test_an_export_gives_its_article_and_nothing_else(wiki: Wiki, tmp_path: Path) -> None:
    path = tmp_path / "wiki.xml"
    path.write_text(foreign_pages.export(wiki), encoding="utf-8")
    source = Wikipedia([path], 16 << 20)
    assert source.language == wiki.language
    article, *others = [item for unit in source.units for item in source.read(unit)]
    assert isinstance(article, Document)
    assert joined((article.text,)) == joined(wiki.sentences)
    assert others == [Skipped("Page 1", "redirect"), Skipped("Page 2", "disambiguation page")]


def test_the_header_names_namespaces_that_no_table_knows() -> None:
    head = (
        '<mediawiki version="0.11" xml:lang="fi"><siteinfo><dbname>fiwiki</dbname><namespaces>'
        '<namespace key="6" case="first-letter">Tiedosto</namespace>'
        '<namespace key="14" case="first-letter">Luokka</namespace>'
        '<namespace key="4" case="first-letter">Wikipedia</namespace></namespaces></siteinfo>'
    )
    site = read_site(head.encode())
    assert site.language == "fi"
    page = "[[Tiedosto:A|pienoiskuva|Tämä [[B|ei]] näy.]] Tämä [[Wikipedia:C|sana]] näkyy kyllä. [[Luokka:D]]"
    assert to_prose(page, site=site) == "Tämä sana näkyy kyllä."


@pytest.mark.parametrize(
    ("head", "language"),
    [
        ("<mediawiki><siteinfo><dbname>ruwiki</dbname></siteinfo>", "ru"),
        ("<mediawiki><siteinfo><dbname>frwikisource</dbname></siteinfo>", "fr"),
        ("<mediawiki><siteinfo><dbname>simplewiki</dbname></siteinfo>", "en"),
        ('<mediawiki xml:lang="zh-Hant"><siteinfo></siteinfo>', "zh"),
    ],
)
def test_the_header_names_the_language(head: str, language: str) -> None:
    assert read_site(head.encode()).language == language
    assert read_site(head.encode(), "pl").language == "pl"


@pytest.mark.parametrize(("language", "link", "redirect", "number"), RENDERED["mediawiki"])
def test_the_words_are_those_of_mediawiki(language: str, link: str, redirect: str, number: str) -> None:
    """Written from memory, many of these were missing."""
    site = site_of(language)
    assert site.hidden_link.match(link)
    assert site.redirect.match(f"#{redirect} [[A]]")
    assert grouped("1234567", site.numbers) == number
    assert read_site(f"<mediawiki><siteinfo><dbname>{language}wiki</dbname>".encode()).language == language


def test_exports_of_two_languages_are_refused(tmp_path: Path) -> None:
    for wiki in WIKIS[:2]:
        (tmp_path / f"{wiki.language}.xml").write_text(foreign_pages.export(wiki), encoding="utf-8")
    with pytest.raises(UserError, match=r"de\.xml \(de\) and fr\.xml \(fr\) are of different languages"):
        Wikipedia([tmp_path], 1 << 20)


@pytest.mark.parametrize("markup", RENDERED["wordless"])
def test_templates_without_words_leave_nothing(markup: str) -> None:
    assert to_prose(f"Il vit à Paris {markup} et va à Lyon.", site=site_of("fr")) == "Il vit à Paris et va à Lyon."


@pytest.mark.parametrize("template", ["Disambiguation|geo", "disambig", "dab", "surname"])
def test_a_page_of_prose_is_an_article_whatever_its_template(template: str) -> None:
    """In another wiki, a template of this name may be a note above articles."""
    site = site_of("en")
    items = "".join(f"* [[Abc {number}]], a town in the country of Def\n" for number in range(200))
    page = f"'''Abc''' may refer to:\n{items}{{{{{template}}}}}"
    assert site.lists_meanings("Abc", page)
    prose = "Abc is a town on a river, and it has a bridge. " * 60
    assert not site.lists_meanings("Abc", f"{page}\n{prose}")
    assert site.lists_meanings("Abc (disambiguation)", f"{page}\n{prose}")


@pytest.mark.parametrize(("code", "link", "section"), RENDERED["small_wikis"])
def test_other_codes_and_small_wikis(code: str, link: str, section: str) -> None:
    page = f"Abc def ghi. [[{link}]]\n== {section} ==\nJkl mno pqr stu.\n[[{link}]]"
    assert to_prose(page, site=site_of(code)) == "Abc def ghi."


@pytest.mark.parametrize(("markup", "words"), RENDERED["variants"])
def test_variants(markup: str, words: str) -> None:
    assert choose_variants(f"x{markup}y", site_of("zh").variants) == f"x{words}y"
    assert choose_variants(f"[[A|{markup}]]", site_of("zh").variants) == f"[[A|{words}]]"


@pytest.mark.parametrize(("language", "sentence"), RENDERED["lost"])
def test_a_sentence_without_its_amount_goes(language: str, sentence: str) -> None:
    assert to_prose(f"Abc def ghi. {sentence} Jkl mno pqr.", site=site_of(language)) == "Abc def ghi. Jkl mno pqr."


@pytest.mark.parametrize(("language", "markup", "prose"), RENDERED["foreign"])
def test_a_sentence_that_lacks_no_amount_stays(language: str, markup: str, prose: str) -> None:
    assert to_prose(markup, site=site_of(language)) == prose


def test_lists_of_meanings_and_notes_about_another_meaning() -> None:
    for language, template in (("it", "Disambigua"), ("uk", "Багатозначність"), ("ko", "동음이의"), ("en", "surname")):
        assert site_of(language).disambiguation.search(f"Abc def.\n{{{{{template}}}}}")
    for language, template in RENDERED["notes"]:
        page = f"{{{{{template}|Abc}}}}\n'''Abc''' def ghi jkl."
        assert not site_of(language).lists_meanings("Abc", page), template
