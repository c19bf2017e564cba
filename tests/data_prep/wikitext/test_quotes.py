"""Apostrophes are marks or text as MediaWiki decides, line by line."""

import pytest

from data_prep.wikitext import to_prose


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
