"""The preflight's own list of what hosts must have in common. tests/cluster/test_preflight.py asks real hosts."""

import socket
from pathlib import Path

import pytest

from pipeline import preflight
from pipeline.distributed.rendezvous import reserve_port
from tests.pipeline.conftest import REPOSITORY

NOT_NEEDED_TO_TRAIN = {"tests", "benchmarks", "albert_pretraining"}


def test_every_package_is_compared_between_hosts() -> None:
    packages = {path.parent.name for path in REPOSITORY.glob("*/__init__.py")} - NOT_NEEDED_TO_TRAIN
    assert {"common", "pipeline"} <= packages
    assert packages <= set(preflight.SOURCES)


@pytest.fixture
def on_the_processor(monkeypatch):
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    monkeypatch.chdir(REPOSITORY)


def test_this_machine_can_train(on_the_processor, tmp_path, capsys):
    words = ["--output", str(tmp_path / "runs" / "new"), "--master_port", str(reserve_port())]
    assert preflight.main(words) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("this machine, ")
    assert "cores without a GPU: ready (" in line
    assert not any(tmp_path.iterdir())


def test_a_port_that_is_taken_is_a_problem(on_the_processor, capsys):
    with socket.create_server(("", 0)) as taken:
        assert preflight.main(["--master_port", str(taken.getsockname()[1])]) == 1
    port, verdict = capsys.readouterr().out.splitlines()
    assert port.startswith("this machine: the port is taken")
    assert ": 1 problem (" in verdict


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_an_output_that_is_a_file_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "hostfile").write_text("localhost slots=1\n")
    words = ["preflight", "--hostfile", str(tmp_path / "hostfile"), "--output", str(tmp_path / name)]
    monkeypatch.setattr("sys.argv", words)
    assert preflight.main() == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: cannot write to {tmp_path / name}: Not a directory; choose another")
    assert said.count("\n") == 1
