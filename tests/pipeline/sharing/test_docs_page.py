"""The commands for exports of docs/python.md, literally, on a made run."""

import re

import pytest

from pipeline import export
from tests.docs.pages import REPOSITORY, commands_of, module_command
from tests.pipeline.sharing import runs

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")]

PAGE = REPOSITORY / "docs" / "python.md"


def test_the_page_does_what_it_says(corpus, tmp_path, monkeypatch, capsys):
    runs.metrics(runs.pretraining(tmp_path / "runs" / "mine", corpus.vocabulary, (500, 1000)), {500: 5.0, 1000: 4.0})
    monkeypatch.chdir(tmp_path)
    commands = [module_command(command) for _, command in commands_of(PAGE) if module_command(command)]
    assert len(commands) == 1
    for module, words in commands:
        assert module == "pipeline.export"
        assert export.main(words) == 0

    page = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*?`) \|", page.split("## What is written")[1], re.MULTILINE)
    files = {name for row in rows for name in re.findall("`(.*?)`", row)}
    written = {path.name for path in (tmp_path / "my-albert").iterdir()}
    assert written <= files

    capsys.readouterr()
    assert export.main(["--run", "runs/mine", "--out", "other", "--step", "300"]) == 2
    shown = next(line.strip() for line in page.splitlines() if line.startswith("    error: "))
    assert capsys.readouterr().err.strip() == shown
