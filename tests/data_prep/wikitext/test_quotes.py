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
        ("Le mot'''gras''' d'''Iliade'' est ici.", "Le motgras d'Iliade est ici."),
        ("Le mot'''gras''' é'''Iliade'' est ici.", "Le mot'gras éIliade est ici."),
        ("It''s ''one'' here.\nIt's '''two''' here.", "Its one here. It's two here."),
    ],
)
def test_apostrophes(markup: str, text: str) -> None:
    assert to_prose(markup) == text
