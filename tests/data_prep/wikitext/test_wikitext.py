"""`to_prose` gives what a reader of the rendered page sees, sentence by sentence."""

import hashlib
import re
import time
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.corpus.documents import Document
from data_prep.sources.wikipedia import Wikipedia
from data_prep.wikitext import paragraphs, to_prose
from data_prep.wikitext.markers import REMOVED
from data_prep.wikitext.site import site_of
from data_prep.wikitext.tags import formula_to_text

PROSE_DIGEST = "4e21240f1fb9c5572d2d6382e3e3277cef9ebae4d0879b312650203d109b10ef"
"""sha256 of the articles of the sample corpus."""

RENDERED = tomllib.loads(Path(__file__).with_name("rendered.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("markup", "words"), RENDERED["inline"])
def test_inside_a_sentence(markup: str, words: str) -> None:
    assert to_prose(f"It is {markup} and so on.") == f"It is {words} and so on."


@pytest.mark.parametrize(("language", "markup", "words"), RENDERED["templates"])
def test_templates_in_other_languages(language: str, markup: str, words: str) -> None:
    assert to_prose(f"Abc def ghi {markup} jkl mno.", site=site_of(language)) == f"Abc def ghi {words} jkl mno."


@pytest.mark.parametrize(("markup", "prose"), RENDERED["pages"])
def test_pages(markup: str, prose: str) -> None:
    assert to_prose(markup) == prose


PROSE = "The town lies on a river and has a bridge."


@pytest.mark.parametrize(("other", "stays"), RENDERED["prose"])
def test_what_is_no_prose_goes(other: str, stays: bool) -> None:
    first, *between, last = to_prose(f"{PROSE}\n\n{other}\n\n{PROSE}").split("\n")
    assert (first, last, len(between)) == (PROSE, PROSE, stays)


@pytest.mark.parametrize("table", RENDERED["tables"])
def test_tables_end_in_many_ways(table: str) -> None:
    losses: list[str] = []
    assert to_prose(f"It is one.\n{table}\n\nIt is two.", losses=losses).split("\n") == ["It is one.", "It is two."]
    assert not losses


@pytest.mark.parametrize(("markup", "prose"), RENDERED["unclosed"])
def test_an_unclosed_table_ends_at_a_heading_and_is_reported(markup: str, prose: str) -> None:
    losses: list[str] = []
    assert to_prose(markup, losses=losses) == prose
    assert losses == ["unclosed table"]


@pytest.mark.parametrize("line", ["A [[caption]] with words.", "A {{nowrap|caption}} with words.", "A caption", ""])
def test_a_file_link_without_end_shows_nothing(line: str) -> None:
    prose = to_prose(f"It is one.\n\n[[File:A.jpg|thumb|{line}\nIt is [[two]].\n== H ==\nIt is three.")
    assert prose == "It is one.\nIt is two.\nIt is three."


@pytest.mark.parametrize("markup", ["{{#expr:1+1}}", "{{#if:x|a}}", "{{#if:{{#if:|x}}|b}}", "{{lc:A}}", "{{PAGENAME}}"])
def test_a_sentence_with_a_function_of_the_wiki_goes(markup: str) -> None:
    assert to_prose(f"It is one. It is {markup} there. It is two.") == "It is one. It is two."


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
    source = Wikipedia([sample_corpus / "wikipedia"], 16 << 20)
    texts = [item.text for unit in source.units for item in source.read(unit) if isinstance(item, Document)]
    assert hashlib.sha256("\n\n".join(texts).encode()).hexdigest() == PROSE_DIGEST
    everything = "\n".join(texts)
    assert not re.search(r"\{\{|\}\}|\[\[|\]\]|<ref|</|'''|&nbsp;|\[http", everything)
    # Sentences with a template in their middle, as the rendered pages have them.
    for sentence in (
        "At 1,300 miles, Alabama has one of the longest navigable inland waterways in the nation.",
        "are diagnosed with ASD as of 2014, a 30% increase from one in 88 in 2012",
        "Actresses (Catalan: Actrius) is a 1997 Catalan language Spanish drama film",
        "Alain Connes (born 1 April 1947) is a French mathematician",
    ):
        assert sentence in everything, sentence


@given(text=st.text(alphabet=f'a ,;:.!?)]’”"\n{REMOVED}', max_size=12))
def test_a_pattern_is_only_skipped_where_it_matches_nothing(text: str) -> None:
    for skips, pattern in (
        (paragraphs._HAS_BEFORE_SEPARATOR, paragraphs._BEFORE_SEPARATOR),
        (paragraphs._HAS_BEFORE_STOP, paragraphs._BEFORE_STOP),
    ):
        assert skips.search(text) or not pattern.search(text)
