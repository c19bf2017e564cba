"""`--push` with a stand-in of the hub's client: what arrives, where, and what is told when it cannot."""

import httpx2
import pytest
from huggingface_hub import constants
from huggingface_hub.errors import HfHubHTTPError

from pipeline import export
from tests.pipeline.sharing import runs
from tests.pipeline.sharing.conftest import INITIAL, TOKEN


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
    assert said.out.endswith(f"pushed to {hub.endpoint}/me/tiny: step-3, main; main has step 3\n")
    assert said.err == ""
    repository = hub.repositories["me/tiny"]
    assert repository.private
    exported = files_of(tmp_path / "out")
    assert set(repository.branches) == {"main", "step-3"}
    assert repository.branches["main"] == repository.branches["step-3"] == INITIAL | exported
    assert repository.commits == ["Step 3", "Step 3"]
    assert b"me/tiny" in exported["README.md"]


def test_the_best_goes_to_main_a_step_to_its_branch_only_and_files_of_people_stay(run, hub, tmp_path):
    assert push(run, tmp_path / "best", "--best", "--public") == 0
    assert not hub.repositories["me/tiny"].private
    branches = hub.repositories["me/tiny"].branches
    assert branches["main"] == INITIAL | files_of(tmp_path / "best")
    assert push(run, tmp_path / "first", "--step", 1) == 0
    assert branches["main"] == INITIAL | files_of(tmp_path / "best")
    assert branches["step-1"] == INITIAL | files_of(tmp_path / "first")
    assert set(branches) == {"main", "step-1", "step-2"}
    branches["main"] |= {"modules.json": b"of an earlier export", "notes.md": b"of a person"}
    assert push(run, tmp_path / "best", "--best") == 0
    assert branches["main"] == INITIAL | files_of(tmp_path / "best") | {"notes.md": b"of a person"}


def refusal(run, out, capsys, *words):
    """The line of a command that refuses, which has no token in it."""
    assert export.main(["--run", str(run), "--out", str(out), *words]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    assert TOKEN not in said
    return said


def test_mistakes_are_refused_before_anything_is_written(run, hub, tmp_path, capsys, monkeypatch):
    out = tmp_path / "out"
    assert "tiny has no owner; give OWNER/NAME" in refusal(run, out, capsys, "--push", "tiny")
    for name in ("me/tiny/more", "me/ti ny", ""):
        assert "give OWNER/NAME" in refusal(run, out, capsys, "--push", name)
    assert "give --push OWNER/NAME" in refusal(run, out, capsys, "--public")
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
    assert "set HF_TOKEN, or run `hf auth login`" in refusal(run, out, capsys, "--push", "me/tiny")
    assert not out.exists()
    assert hub.calls == []


def refused(status):
    answer = httpx2.Response(status, request=httpx2.Request("GET", "https://hub.example"))
    return HfHubHTTPError(f"of {TOKEN}", response=answer, server_message=f"no\nway for {TOKEN}")


@pytest.mark.parametrize(
    ("call", "error", "told"),
    [
        ("whoami", refused(401), "way for *** (status 401); check the token"),
        ("create_branch", refused(500), "way for *** (status 500)"),
        ("whoami", httpx2.ConnectError("no route"), "no route; check the token, the name, the network and HF_ENDPOINT"),
        ("upload_folder", RuntimeError("half sent"), "half sent; check "),
    ],
)
def test_what_the_client_raises_is_one_line_and_an_export_stays(run, hub, tmp_path, capsys, call, error, told):
    hub.errors[call] = error
    line = refusal(run, tmp_path / "out", capsys, "--push", "me/tiny")
    assert f"--push to {hub.endpoint}/me/tiny failed: " in line
    assert told in line
    assert (tmp_path / "out").exists() == (call != "whoami")
    assert push(run, tmp_path / "out") == 0
