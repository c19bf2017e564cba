"""Counts, durations and tables as people read them."""

from types import SimpleNamespace

import pytest

from common.text import fit_to_terminal, format_duration, markdown_table, quantity


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (61, "1 min 1 s"),
        (3599.4, "59 min 59 s"),
        (3599.5, "1 h 0 min"),
        (2 * 3600 + 10 * 60 + 59, "2 h 10 min"),
        (99 * 3600 + 60, "99 h 1 min"),
        (1234 * 3600 + 60, "1,234 h"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_counts_have_their_noun() -> None:
    assert [quantity(count, "row") for count in (0, 1, 2000)] == ["0 rows", "1 row", "2,000 rows"]


def test_tables() -> None:
    rows = [("a", 1), ("b", 20)]
    assert markdown_table(["name", "n"], rows, "lr") == "| name | n |\n|---|---:|\n| a | 1 |\n| b | 20 |"
    assert markdown_table(["name"], []) == "| name |\n|---|"


def test_a_terminal_breaks_no_words(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a short line\nstep  5/10  loss 7.0000  held-out rows"
    assert fit_to_terminal(text) == text
    monkeypatch.setattr("sys.stdout", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setenv("COLUMNS", "30")
    assert fit_to_terminal(text) == "a short line\nstep  5/10  loss 7.0000\n  held-out rows"
