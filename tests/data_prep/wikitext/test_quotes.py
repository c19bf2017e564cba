"""Apostrophes are marks or text as MediaWiki decides, line by line."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.wikitext import to_prose
from data_prep.wikitext.markup import drop_quotes


def port_of_media_wiki(line: str) -> str:
    """The text that MediaWiki's `Parser::doQuotes` leaves beside its tags, step by step, on bytes as in PHP."""
    arr = re.split(rb"(''+)", line.encode())
    numbold = numitalics = 0
    for i in range(1, len(arr), 2):
        if len(arr[i]) == 4:
            arr[i - 1] += b"'"
            arr[i] = b"'''"
        elif len(arr[i]) > 5:
            arr[i - 1] += b"'" * (len(arr[i]) - 5)
            arr[i] = b"'''''"
        if len(arr[i]) == 2:
            numitalics += 1
        elif len(arr[i]) == 3:
            numbold += 1
        elif len(arr[i]) == 5:
            numitalics += 1
            numbold += 1
    if numbold % 2 == 1 and numitalics % 2 == 1:
        firstsingleletterword = firstmultiletterword = firstspace = -1
        for i in range(1, len(arr), 2):
            if len(arr[i]) == 3:
                x1 = arr[i - 1][-1:]
                x2 = arr[i - 1][-2:][:1]
                if x1 == b" ":
                    if firstspace == -1:
                        firstspace = i
                elif x2 == b" ":
                    firstsingleletterword = i
                    break
                elif firstmultiletterword == -1:
                    firstmultiletterword = i
        for chosen in (firstsingleletterword, firstmultiletterword, firstspace):
            if chosen > -1:
                arr[chosen] = b"''"
                arr[chosen - 1] += b"'"
                break
    return b"".join(arr[::2]).decode()


@given(st.lists(st.sampled_from(["'", "''", "'''", "''''", "'''''", " ", "a", "é", "word", " l", " d'"]), max_size=24))
def test_a_line_is_read_as_media_wiki_reads_it(pieces: list[str]) -> None:
    line = "".join(pieces)
    assert drop_quotes(line) == port_of_media_wiki(line)


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("L''''Autriche''' est un pays.", "L'Autriche est un pays."),
        ("Dans l'''Iliade'', il parle.", "Dans l'Iliade, il parle."),
        ("Nell'''Eneide'' si legge questo.", "Nell'Eneide si legge questo."),
        ("L'''Express'' is a paper, '''and''' so on.", "L'Express is a paper, and so on."),
        ("''Eagle'''s footpads and ''Eagle'''s '''large''' tanks.", "Eagle's footpads and Eagle's large tanks."),
        ("'''''Both''' and'' neither are here.", "Both and neither are here."),
        ("It''s ''one'' here.\nIt's '''two''' here.", "Its one here. It's two here."),
    ],
)
def test_apostrophes(markup: str, text: str) -> None:
    assert to_prose(markup) == text
