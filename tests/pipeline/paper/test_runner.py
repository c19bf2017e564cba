"""Commands that run at the same time: what they print stays whole lines."""

import io
import sys
from pathlib import Path

import pytest

from pipeline.paper.experiments import Command
from pipeline.paper.runner import Runner


class Writes(io.StringIO):
    """Keeps what each write was given: threads take turns between writes."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[str] = []

    def write(self, text: str) -> int:
        self.given += [text] if text else []
        return len(text)


@pytest.mark.parametrize(("status", "lines"), [(0, 1), (3, 4)], ids=["ends", "fails"])
def test_the_lines_of_a_command_are_one_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, lines: int
) -> None:
    done = tmp_path / "done"
    done.touch()
    program = f"import sys; print('one'); print('two'); sys.exit({status})"
    stages = [(Command("before", ("no",), done), Command("now", (sys.executable, "-c", program)))]
    monkeypatch.setattr(sys, "stdout", written := Writes())
    assert Runner(tmp_path / "logs", at_a_time=2).run(stages) == status
    assert sorted(text.count("\n") for text in written.given) == [1, lines]
    assert all(text.endswith("\n") for text in written.given)
    assert "[1/2] before: done before\n" in written.given
