"""`export`: which checkpoints, what is said if there are none, and the commands of docs/python.md, literally."""

import re
import shutil

import pytest
import torch
from safetensors.torch import load_file

from pipeline import export
from pipeline.checkpoint.files import load_weights
from tests.docs.pages import REPOSITORY, commands_of, module_command
from tests.pipeline.sharing import runs

PAGE = REPOSITORY / "docs" / "python.md"
NAME = "albert.embeddings.word_embeddings.weight"


@pytest.fixture
def run(corpus, tmp_path):
    """A run with checkpoints of steps 2, 4 and 8; that of step 4 has the lowest loss, that of step 6 was deleted."""
    directory = runs.pretraining(tmp_path / "run", corpus.vocabulary, (2, 4, 8))
    return runs.metrics(directory, {2: 6.0, 4: 4.0, 6: 3.0, 8: 5.0})


@pytest.mark.parametrize(("words", "step"), [((), 8), (("--step", "2"), 2)])
def test_one_checkpoint(run, tmp_path, capsys, words, step):
    assert export.main(["--run", str(run), "--out", str(tmp_path / "out"), *words]) == 0
    found = load_file(tmp_path / "out" / "model.safetensors")[NAME]
    tags = (run / "checkpoints").glob("step-*")
    assert [tag.name for tag in tags if torch.equal(load_weights(tag)[NAME], found)] == [f"step-{step:08d}"]
    assert capsys.readouterr().out == f"wrote {tmp_path / 'out'} in the Hugging Face layout\n"


def test_a_step_that_is_not_there_and_what_may_not_be_replaced_before_any_work(run, tmp_path, refusal):
    told = refusal(export.main, "--run", run, "--out", tmp_path / "out", "--step", 6)
    assert "no checkpoint of step 6; its steps: 2, 4, 8" in told
    told = refusal(export.main, "--run", tmp_path / "none", "--out", tmp_path / "out", "--step", 6)
    assert "holds no run" in told
    assert not (tmp_path / "out").exists()
    shutil.rmtree(run / "checkpoints")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "mine.txt").write_text("mine")
    assert "mine is not empty" in refusal(export.main, "--run", run, "--out", tmp_path / "mine")


@pytest.mark.parametrize("place", [".", "..", "checkpoints", "checkpoints/new"])
def test_an_export_never_takes_the_place_of_its_run(run, refusal, place):
    said = refusal(export.main, "--run", run, "--out", run / place, "--overwrite")
    assert "holds the run or is one of its checkpoints" in said
    assert (run / "settings.json").exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
def test_the_page_does_what_it_says(corpus, tmp_path, monkeypatch, refusal):
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

    shown = next(line.strip() for line in page.splitlines() if line.startswith("    error: "))
    assert refusal(export.main, "--run", "runs/mine", "--out", "other", "--step", "300").strip() == shown
