"""Counts, durations and tables as people read them, and the progress of a job."""

import sys

import pytest

from common.errors import UserError
from common.progress_bar import Progress
from common.text import format_duration, markdown_table, printable, quantity


def test_durations() -> None:
    shown = {0: "0 s", 59.6: "1 min 0 s", 3599.5: "1 h 0 min", 7859: "2 h 10 min", 1234 * 3600 + 60: "1,234 h"}
    assert {seconds: format_duration(seconds) for seconds in shown} == shown


@pytest.mark.parametrize(
    "letter", ["\x1b", "\x00", "\x7f", "\x9b", "\r", "\u2028", "\ud800", "\u202e", "\u2066", "\u061c"]
)
def test_text_of_others_cannot_control_a_terminal_or_a_page(letter: str) -> None:
    shown = ascii(letter)[1:-1]
    assert printable(f"né{letter}é") == f"né{shown}é"
    assert printable(f"a\n{letter}b", keep="\n") == f"a\n{shown}b"
    assert str(UserError(f"{letter} is there")) == f"{shown} is there"
    assert markdown_table([letter], [[letter]]) == f"| {shown} |\n|---|\n| {shown} |"


def test_no_secret_of_a_url_is_in_a_message() -> None:
    shown = {
        "--data s3://key:secret@bucket/a: no": "--data s3://***@bucket/a: no",
        "'https://u:p@h/a?sig=1&x=2' is": "'https://***@h/a?***' is",
        "https://h/a?X-Amz-Signature=abc; copy": "https://h/a?***; copy",
        "what? a=b; at me@example.org, s3://bucket/a": "what? a=b; at me@example.org, s3://bucket/a",
        "s3://key@bucket": "s3://***@bucket",
    }
    assert {message: str(UserError(message)) for message in shown} == shown


def test_a_message_is_of_bounded_length() -> None:
    line = str(UserError(f"row 3: the value {'x' * 900_000!r} is no number; correct it"))
    assert len(line) < 2100
    assert line.startswith("row 3: the value 'xxx")
    assert line.endswith("xxx' is no number; correct it")


def test_counts_and_tables() -> None:
    assert [quantity(count, "row") for count in (0, 1, 2000)] == ["0 rows", "1 row", "2,000 rows"]
    rows = [("a", 1), ("b", 20)]
    assert markdown_table(["name", "n"], rows, "lr") == "| name | n |\n|---|---:|\n| a | 1 |\n| b | 20 |"
    assert markdown_table(["name"], []) == "| name |\n|---|"


def test_a_log_gets_plain_lines_and_a_short_step_none(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("shards", 4_000_000, "B") as shown:
        shown.resume(1_000_000)
        shown.update(3_000_000)
        shown.say("words")
    said = capsys.readouterr()
    assert said.out == "words\n"
    assert "\r" not in said.err
    assert "shards: 1.00M of 4.00M (25 %)" in said.err
    assert said.err.splitlines()[-1].startswith("shards: 4.00M of 4.00M (100 %)")
    with Progress("new", 4, "rows") as shown:
        shown.resume(0)
        shown.update(4)
    assert [line[:8] for line in capsys.readouterr().err.splitlines()] == ["new: 0 o", "new: 4 o"]
    with (
        Progress("plan", 2, "files", quiet_seconds=500.0) as short,
        Progress("plan", 2, "files", enabled=False) as other,
        Progress("train", 2, "steps", plain_lines=False) as silent,
    ):
        for shown in (short, other, silent):
            shown.update(2)
            shown.say("words")
    assert capsys.readouterr() == ("words\nwords\n", "")


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with Progress("shards", 1000, "rows") as shown:
        shown.resume(900)
    assert "900/1000" in capsys.readouterr().err
