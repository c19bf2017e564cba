"""The pages are wrapped at 120 columns, have no sentence of more than 35 words, and open with what they are for."""

import pytest

from tests.docs.pages import PAGES, blocks_of, sentences_of, texts_of

WIDTH = 120
WORDS = 35

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@pages
def test_lines_are_wrapped(page):
    """A row of a table cannot be wrapped in Markdown, so tables are left out."""
    too_wide = [
        f"line {block.line + number}: {len(line)} columns"
        for block in blocks_of(page)
        if block.kind != "table"
        for number, line in enumerate(block.lines)
        if len(line) + 4 * (block.kind == "code" and block.language == "") > WIDTH
    ]
    assert not too_wide, "\n".join([page.name, *too_wide])


@pages
def test_sentences_are_short(page):
    """Also in the cells of tables."""
    too_long = [
        f"line {block.line}, {len(sentence.split())} words: {sentence}"
        for block in blocks_of(page)
        for text in texts_of(block)
        for sentence in sentences_of(text)
        if len(sentence.split()) > WORDS
    ]
    assert not too_long, "\n".join([page.name, *too_long])


@pages
def test_a_page_opens_with_what_it_is_for(page):
    title, opening, *_ = blocks_of(page)
    assert title.kind == "heading"
    assert title.lines[0].startswith("# ")
    assert opening.kind == "prose"
    assert len(" ".join(opening.lines).split()) >= 8


def test_a_long_sentence_and_a_wide_line_are_seen(tmp_path):
    """The checks above, on a page that breaks each rule once."""
    page = tmp_path / "page.md"
    long = " ".join(["word"] * 36)
    page.write_text(
        f"# Title\n\nShort. {long.capitalize()}.\n\n- an item\n- `{long}`\n\n    {'x' * 120}\n\n| a | {long} |\n"
    )
    blocks = list(blocks_of(page))
    assert [block.kind for block in blocks] == ["heading", "prose", "prose", "prose", "code", "table"]
    counts = [len(s.split()) for block in blocks for text in texts_of(block) for s in sentences_of(text)]
    assert counts == [1, 1, 36, 2, 1, 1, 36]
    with pytest.raises(AssertionError, match="line 8: 120 columns"):
        test_lines_are_wrapped(page)
    with pytest.raises(AssertionError, match="36 words"):
        test_sentences_are_short(page)
