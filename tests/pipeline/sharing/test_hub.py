"""`--push` against a stand-in of the hub: what arrives, where, and what is told when it cannot."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import constants
from safetensors.torch import load_file

from pipeline import export
from tests.pipeline.sharing import runs
from tests.pipeline.sharing.hub_server import INITIAL, TOKEN

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # of the client's own upload

REPOSITORY = Path(__file__).resolve().parents[3]
OTHER_TOKEN = "hf_" + "x" * 34


@pytest.fixture(scope="module")
def run(corpus, tmp_path_factory):
    """A run with three checkpoints, of which the second has the lowest loss."""
    directory = runs.pretraining(tmp_path_factory.mktemp("made") / "run", corpus.vocabulary, (1, 2, 3))
    return runs.metrics(directory, {1: 6.0, 2: 4.0, 3: 5.0})


def push(run, out, *words):
    return export.main(["--run", str(run), "--out", str(out), "--push", "me/tiny", *map(str, words)])


def files_of(directory):
    """The exported files by name, without the marker."""
    return {path.name: path.read_bytes() for path in directory.iterdir() if not path.name.startswith(".")}


def test_the_newest_goes_to_main_and_to_its_branch(run, hub, tmp_path, capsys):
    assert push(run, tmp_path / "out", "--license", "mit") == 0
    said = capsys.readouterr()
    assert said.out.endswith(f"pushed to {hub.url}/me/tiny: step-3, main; main has step 3\n")
    assert said.err == ""
    repository = hub.repositories["me/tiny"]
    assert repository.private
    exported = files_of(tmp_path / "out")
    assert set(repository.branches) == {"main", "step-3"}
    assert repository.branches["main"] == repository.branches["step-3"] == INITIAL | exported
    assert repository.commits == ["Step 3", "Step 3"]
    assert b"me/tiny" in exported["README.md"]


def test_every_checkpoint_is_a_branch_and_main_has_the_newest(run, hub, tmp_path):
    assert push(run, tmp_path / "out", "--all", "--public") == 0
    repository = hub.repositories["me/tiny"]
    assert not repository.private
    assert set(repository.branches) == {"main", "step-1", "step-2", "step-3"}
    for step in (1, 2, 3):
        assert repository.branches[f"step-{step}"] == INITIAL | files_of(tmp_path / "out" / f"step-{step}")
    assert repository.branches["main"] == repository.branches["step-3"]
    weights = {branch: files["model.safetensors"] for branch, files in repository.branches.items()}
    assert len(set(weights.values())) == 3


def test_the_best_goes_to_main_and_a_step_to_its_branch_only(run, hub, tmp_path):
    assert push(run, tmp_path / "best", "--best") == 0
    branches = hub.repositories["me/tiny"].branches
    assert branches["main"] == INITIAL | files_of(tmp_path / "best")
    before = dict(branches["main"])
    assert push(run, tmp_path / "first", "--step", 1) == 0
    assert branches["main"] == before
    assert branches["step-1"] == INITIAL | files_of(tmp_path / "first")
    assert set(branches) == {"main", "step-1", "step-2"}


def test_a_second_push_removes_only_what_an_export_had_made(run, hub, tmp_path):
    assert push(run, tmp_path / "out") == 0
    main = hub.repositories["me/tiny"].branches["main"]
    main |= {"model.onnx": b"of an earlier export", "notes.md": b"of a person"}
    assert push(run, tmp_path / "out") == 0
    assert main == INITIAL | files_of(tmp_path / "out") | {"notes.md": b"of a person"}


@pytest.mark.slow
def test_what_was_pushed_opens_by_its_name_and_revision(run, hub, tmp_path):
    """In a process of its own, because clients read HF_ENDPOINT when they are imported."""
    environment = {**os.environ, "HF_HUB_DISABLE_XET": "1", "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}

    def started(*words):
        return subprocess.run(
            [sys.executable, *words], cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False
        )

    ended = started("-m", "pipeline.export", "--run", run, "--out", tmp_path / "out", "--push", "me/tiny", "--all")
    assert (ended.returncode, ended.stderr) == (0, "")
    code = """
from transformers import AutoModelForPreTraining, AutoTokenizer
for revision in ("main", "step-1"):
    model = AutoModelForPreTraining.from_pretrained("me/tiny", revision=revision)
    print(float(model.predictions.dense.weight.double().sum()))
print(AutoTokenizer.from_pretrained("me/tiny").mask_token)
"""
    opened = started("-c", code)
    assert opened.returncode == 0, opened.stderr
    expected = []
    for step in (3, 1):
        tensors = load_file(tmp_path / "out" / f"step-{step}" / "model.safetensors")
        expected.append(str(float(tensors["predictions.dense.weight"].double().sum())))
    assert opened.stdout.split() == [*expected, "[MASK]"]
    found = TOKEN.encode()
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and found in path.read_bytes()]
    assert TOKEN not in ended.stdout + ended.stderr + opened.stdout + opened.stderr


def refusal(run, out, capsys, *words):
    """The line of a command that refuses, after which nothing was written."""
    assert export.main(["--run", str(run), "--out", str(out), *words]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    assert TOKEN not in said
    assert OTHER_TOKEN not in said
    return said


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("tiny", "has no owner; give OWNER/NAME"),
        ("me/tiny/more", "give OWNER/NAME"),
        ("me/ti ny", "give OWNER/NAME"),
        ("../tiny", "give OWNER/NAME"),
        ("me/", "give OWNER/NAME"),
        ("", "give OWNER/NAME"),
    ],
)
def test_a_name_that_is_none_is_refused_before_anything_is_written(run, hub, tmp_path, capsys, name, told):
    assert told in refusal(run, tmp_path / "out", capsys, "--push", name)
    assert not (tmp_path / "out").exists()
    assert hub.requests == []


def test_no_token(run, hub, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
    told = refusal(run, tmp_path / "out", capsys, "--push", "me/tiny")
    assert "set HF_TOKEN, or run `hf auth login`" in told
    assert not (tmp_path / "out").exists()


def test_a_token_that_the_server_does_not_know(run, hub, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", OTHER_TOKEN)
    assert "the token is not valid (status 401)" in refusal(run, tmp_path / "out", capsys, "--push", "me/tiny")
    assert not (tmp_path / "out").exists()


def test_a_namespace_of_others(run, hub, tmp_path, capsys):
    told = refusal(run, tmp_path / "out", capsys, "--push", "you/tiny")
    assert "the token may not write there (status 403)" in told
    assert hub.repositories == {}


def test_no_server(run, hub, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert "check the network and HF_ENDPOINT" in refusal(run, tmp_path / "out", capsys, "--push", "me/tiny")
    assert not (tmp_path / "out").exists()


def test_an_upload_that_breaks(run, hub, tmp_path, capsys):
    hub.broken_uploads = True
    assert f"--push to {hub.url}/me/tiny failed: " in refusal(run, tmp_path / "out", capsys, "--push", "me/tiny")
    assert (tmp_path / "out" / "model.safetensors").exists()  # the export stays; the same command pushes it again
    hub.broken_uploads = False
    assert push(run, tmp_path / "out") == 0


def test_public_without_push(run, tmp_path, capsys):
    assert "give --push OWNER/NAME" in refusal(run, tmp_path / "out", capsys, "--public")
