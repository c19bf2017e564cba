"""Mistakes of the user in a fine-tuning command, files that change, and results that cannot be written."""

import shutil
import sys

import pytest

from pipeline import finetune
from tests.pipeline.conftest import run
from tests.pipeline.finetuning.finetune_runs import be_no_rank, results, words
from tests.pipeline.outcome import records

pytestmark = pytest.mark.slow


def test_a_mistake_is_one_line_and_nothing_is_written(data, tmp_path, monkeypatch, capsys):
    (tmp_path / "no-train").mkdir()
    (tmp_path / "no-train" / "dev.tsv").write_text("sentence\tlabel\nfine\t1\n")
    command = words(data._replace(glue=tmp_path / "no-train"), "sst2", tmp_path / "run")
    status, _, error = finetune_here(monkeypatch, capsys, command)
    assert (status, error.count("\n")) == (2, 1)
    assert "holds no training examples of sst2; it has dev" in error
    assert not (tmp_path / "run").exists()


def own_files(data, directory):
    """Copies the files of SST-2, which a test may change. Returns their directory, a run's and its command line."""
    if not (directory / "SST-2").exists():
        shutil.copytree(data.glue / "SST-2", directory / "SST-2")
    short = ("--steps", "4", "--eval-interval", "2", "--batch-size", "8")
    where = data._replace(glue=directory / "SST-2")
    return directory / "SST-2", directory / "run", words(where, "sst2", directory / "run", *short)


def finetune_here(monkeypatch, capsys, command):
    """Runs a command in this process. Returns its status, stdout and stderr."""
    be_no_rank(monkeypatch)
    try:
        status = finetune.main(command)
    except SystemExit as left:
        status = left.code
    printed = capsys.readouterr()
    return status, printed.out, printed.err


@pytest.fixture(scope="module")
def short(data, tmp_path_factory):
    """A short run on files of its own. A test must copy it before changing it."""
    root = tmp_path_factory.mktemp("short")
    run(sys.executable, "-m", "pipeline.finetune", *own_files(data, root)[2])
    return root


def test_what_is_only_predicted_makes_no_other_run(short, data, tmp_path):
    """A changed test file is predicted again, without training."""
    shutil.copytree(short, tmp_path / "copy")
    files, output, command = own_files(data, tmp_path / "copy")
    before, trained = records(output), results(output)
    lines = (files / "test.tsv").read_text().splitlines()
    (files / "test.tsv").write_text("\n".join(lines[:-2]) + "\n")
    line = [sys.executable, "-m", "pipeline.finetune", *command]
    run(*line)
    assert len((output / "submission" / "SST-2.tsv").read_text().splitlines()) == len(lines) - 2
    assert (records(output), results(output)["metrics"]) == (before, trained["metrics"])
    assert "nothing to do" in run(*line).stdout

    # What training has seen makes another run.
    (files / "dev.tsv").write_text("\n".join((files / "dev.tsv").read_text().splitlines()[:-1]) + "\n")
    assert "holds a run with other settings (data_digest: " in run(*line, status=2).stderr


def test_a_run_that_has_begun_needs_its_initial_model_no_more(data, tmp_path, monkeypatch, capsys):
    init = shutil.copytree(data.init, tmp_path / "init")
    files, output, command = own_files(data._replace(init=init), tmp_path)
    run(sys.executable, "-m", "pipeline.finetune", *command)
    moved = files.rename(tmp_path / "away")
    status, _, error = finetune_here(monkeypatch, capsys, command)
    assert (status, error.count("\n")) == (2, 1)
    assert f"{files} does not exist" in error
    moved.rename(files)
    shutil.rmtree(init)
    for line in (command, ["--output", str(output)]):
        assert finetune_here(monkeypatch, capsys, line) == (0, f"{output} is finished: nothing to do\n", "")

    # A run with a checkpoint resumes from it.
    before = results(output)
    for name in ("done", "results.json"):
        (output / name).unlink()
    assert "resuming from step 4\n" in run(sys.executable, "-m", "pipeline.finetune", *command).stdout
    assert results(output) == before
    # One without needs the weights.
    shutil.rmtree(output)
    status, _, error = finetune_here(monkeypatch, capsys, command)
    assert (status, f"--init {init} is not a directory" in error) == (2, True)


def test_a_failure_of_the_last_stage_keeps_the_training(short, data, tmp_path):
    """If rank 0 cannot write predictions, all ranks end with one line. The same command repeats only the writing."""
    shutil.copytree(short, tmp_path / "copy")
    _, output, command = own_files(data, tmp_path / "copy")
    before, expected = records(output), results(output)
    for name in ("done", "results.json"):
        (output / name).unlink()
    shutil.rmtree(output / "submission")
    (output / "submission").write_text("a file in the way")
    line = [sys.executable, "-m", "pipeline.finetune", *command]
    failed = run(*line, status=2)
    assert "training is done and saved, and the same command repeats only this" in failed.stderr
    assert "Traceback" not in failed.stdout + failed.stderr
    assert not (output / "done").exists()
    (output / "submission").unlink()
    run(*line)
    assert (records(output), results(output)["metrics"]) == (before, expected["metrics"])
    assert (output / "done").exists()
