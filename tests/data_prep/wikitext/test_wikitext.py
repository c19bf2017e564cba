"""`to_prose` gives what a reader of the rendered page sees, sentence by sentence, in English and other languages."""

import hashlib
import re
import time
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import UserError
from data_prep.corpus.documents import Document
from data_prep.sources import Skipped
from data_prep.sources.wikipedia import Wikipedia
from data_prep.wikitext import paragraphs, to_prose
from data_prep.wikitext.markers import REMOVED
from data_prep.wikitext.site import grouped, read_site, site_of
from data_prep.wikitext.tags import choose_variants, formula_to_text
from tests.data_prep import foreign_pages
from tests.data_prep.corpora import read_all
from tests.data_prep.foreign_pages import WIKIS, Wiki

PROSE_DIGEST = "4e21240f1fb9c5572d2d6382e3e3277cef9ebae4d0879b312650203d109b10ef"
"""sha256 of the articles of the sample corpus."""

RENDERED = tomllib.loads(Path(__file__).with_name("rendered.toml").read_text(encoding="utf-8"))
AROUND = {
    "inline": "It is {} and so on.",  # of markup inside an English sentence, and of the words that a reader sees
    "templates": "Abc def ghi {} jkl mno.",  # of templates in other languages
    "pages": "{}",
    "foreign": "{}",  # sentences in other languages that lack no amount
}


@pytest.mark.parametrize(("table", "case"), [(table, case) for table in AROUND for case in RENDERED[table]])
def test_what_a_reader_sees(table: str, case: list[str]) -> None:
    markup, prose = map(AROUND[table].format, case[-2:])
    assert to_prose(markup, site_of(case[0] if len(case) == 3 else "en")) == prose


PROSE = "The town lies on a river and has a bridge."


@pytest.mark.parametrize(("other", "stays"), RENDERED["prose"])
def test_what_is_no_prose_goes(other: str, stays: bool) -> None:
    first, *between, last = to_prose(f"{PROSE}\n\n{other}\n\n{PROSE}").split("\n")
    assert (first, last, len(between)) == (PROSE, PROSE, stays)


TABLES = [(f"It is one.\n{table}\n\nIt is two.", "It is one.\nIt is two.", []) for table in RENDERED["tables"]]


@pytest.mark.parametrize(
    ("markup", "prose", "lost"), [*TABLES, *((*case, ["unclosed table"]) for case in RENDERED["unclosed"])]
)
def test_tables_end_in_many_ways_and_one_without_an_end_at_a_heading(markup: str, prose: str, lost: list[str]) -> None:
    losses: list[str] = []
    assert to_prose(markup, losses=losses) == prose
    assert losses == lost


@pytest.mark.parametrize("line", ["A [[caption]] with words.", "A {{nowrap|caption}} with words.", "A caption", ""])
def test_a_file_link_without_end_shows_nothing(line: str) -> None:
    prose = to_prose(f"It is one.\n\n[[File:A.jpg|thumb|{line}\nIt is [[two]].\n== H ==\nIt is three.")
    assert prose == "It is one.\nIt is two.\nIt is three."


FUNCTIONS = ["{{#expr:1+1}}", "{{#if:x|a}}", "{{#if:{{#if:|x}}|b}}", "{{lc:A}}", "{{PAGENAME}}"]


@pytest.mark.parametrize(
    ("language", "sentence"), [*RENDERED["lost"], *(("en", f"It is {markup} there.") for markup in FUNCTIONS)]
)
def test_a_sentence_without_its_amount_or_with_a_function_of_the_wiki_goes(language: str, sentence: str) -> None:
    assert to_prose(f"Abc def ghi. {sentence} Jkl mno pqr.", site=site_of(language)) == "Abc def ghi. Jkl mno pqr."


PIECES = """
    {{ }} [[ ]] {| |} | = ( ) ''' [http://a ] == , . : * <ref> </ref> <math> </math> <!-- --> <nowiki> \\frac{ \ue000
    \ue001 word 5 km <sup> </sup> <sub> </sub> <small File: convert val lang-ru nihongo IPA coord as_of inflation
    ship HMS unichar D800 harvtxt chem said currency ordinal
""".split()  # noqa: SIM905
SPACES = ["\n", " ", ". "]


@given(st.lists(st.sampled_from([*PIECES, *SPACES * 4]), max_size=40))
def test_any_markup_gives_clean_text(pieces: list[str]) -> None:
    prose = to_prose("".join(pieces))
    prose.encode()
    assert not re.search("[\ue000-\uf8ff]", prose)
    assert all(line == " ".join(line.split()) and line for line in prose.split("\n") if prose)


BRACKETS = [("(", ")"), ("<ref>", "</ref>"), ("<math>", "</math>"), ("[[", "]]"), ("\n{|", "\n|}"), ("{", "}")]
BEGINNINGS = [
    *("<math>", "<gallery>", "<pre>", "<nowiki>", "<ref>", "<sup>", "<small ", "{{", "[[", "(", "''", "is so\n\n"),
    *("{{IPA|<br>}}", r"{a \over", r"\frac", r"\sqrt[", "^", r"\left.", r"\text{", r"\begin{array}", r"\xrightarrow["),
]
ROWS = [
    *(beginning * 50_000 for beginning in BEGINNINGS),
    "{{" + " " * 80_000 + "}}",
    "-{" + " " * 80_000 + "}-",
    "\n==x" + " " * 80_000 + "x==\n",
    *(f"({{{{cn}}}}{w * 80}x)" for w in ("or:", "u.s.", "pron.:", "as ")),
]


@pytest.mark.parametrize("page", [a * 20_000 + "{{cn}}" + z * 20_000 for a, z in BRACKETS] + ROWS)
def test_the_work_does_not_grow_as_the_square(page: str) -> None:
    """Each took more than a minute, or hours."""
    begin = time.process_time()
    site = site_of("zh")
    assert not site.disambiguation.search(page)
    assert isinstance(to_prose(page, site), str)
    if "\\" in page or page[0] in "{^":
        assert isinstance(formula_to_text(page), str)
    assert time.process_time() - begin < 20


@pytest.mark.parametrize(("latex", "text"), RENDERED["formulas"])
def test_formulas(latex: str, text: str) -> None:
    assert formula_to_text(latex) == text


LATEX_PIECES = [
    r"\frac", r"\over", r"\sqrt", r"\left", r"\right.", r"\begin{array}{c}", r"\end{array}", r"\not", r"\text",
    r"\xrightarrow", r"\tag", "{", "}", "[", "]", "^", "_", "&", "~", "\\\\", "\\", " ", "a", "1", ".",
]  # fmt: skip


@given(st.lists(st.sampled_from(LATEX_PIECES), max_size=40).map("".join))
def test_any_string_is_accepted(latex: str) -> None:
    """Damaged formulas are frequent in exports. Whatever they hold, one line comes out."""
    text = formula_to_text(latex)
    assert text == " ".join(text.split())


def test_the_prose_of_the_sample_is_what_it_was(sample_corpus: Path) -> None:
    """A change of one byte changes the digest: read what has changed before you enter another one."""
    articles = read_all(Wikipedia([sample_corpus / "wikipedia"], 16 << 20))
    texts = [item.text for item in articles if isinstance(item, Document)]
    assert hashlib.sha256("\n\n".join(texts).encode()).hexdigest() == PROSE_DIGEST


@given(text=st.text(alphabet=f'a ,;:.!?)]’”"\n{REMOVED}', max_size=12))
def test_a_pattern_is_only_skipped_where_it_matches_nothing(text: str) -> None:
    for skips, pattern in (
        (paragraphs._HAS_BEFORE_SEPARATOR, paragraphs._BEFORE_SEPARATOR),
        (paragraphs._HAS_BEFORE_STOP, paragraphs._BEFORE_STOP),
    ):
        assert skips.search(text) or not pattern.search(text)


@pytest.mark.parametrize("wiki", WIKIS, ids=[wiki.language for wiki in WIKIS])
def test_an_export_gives_its_article_and_nothing_else(wiki: Wiki, tmp_path: Path) -> None:
    path = tmp_path / "wiki.xml"
    path.write_text(foreign_pages.export(wiki), encoding="utf-8")
    source = Wikipedia([path], 16 << 20)
    assert source.language == wiki.language
    article, *others = read_all(source)
    assert isinstance(article, Document)
    assert "".join(article.text.split()) == "".join("".join(wiki.sentences).split())
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


def test_the_header_names_the_language() -> None:
    names = {"ruwiki": "ru", "frwikisource": "fr", "simplewiki": "en"}
    heads = {f"<mediawiki><siteinfo><dbname>{name}</dbname></siteinfo>": code for name, code in names.items()}
    heads['<mediawiki xml:lang="zh-Hant"><siteinfo></siteinfo>'] = "zh"
    assert {head: read_site(head.encode()).language for head in heads} == heads
    assert {read_site(head.encode(), "pl").language for head in heads} == {"pl"}


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


@pytest.mark.parametrize("language", ["zh", "zh-hant", "yue", "ja"])
def test_lines_of_writing_without_blanks_are_joined_without_one(language: str) -> None:
    assert [block.text for block in paragraphs.blocks("一行\n二行", language)] == ["一行二行"]


@pytest.mark.parametrize(("markup", "words"), RENDERED["variants"])
def test_variants(markup: str, words: str) -> None:
    assert choose_variants(f"x{markup}y", site_of("zh").variants) == f"x{words}y"
    assert choose_variants(f"[[A|{markup}]]", site_of("zh").variants) == f"[[A|{words}]]"


def test_lists_of_meanings_and_notes_about_another_meaning() -> None:
    for language, template in (("it", "Disambigua"), ("uk", "Багатозначність"), ("ko", "동음이의"), ("en", "surname")):
        assert site_of(language).disambiguation.search(f"Abc def.\n{{{{{template}}}}}")
    for language, template in RENDERED["notes"]:
        page = f"{{{{{template}|Abc}}}}\n'''Abc''' def ghi jkl."
        assert not site_of(language).lists_meanings("Abc", page), template
