"""What the preflight asks of a host. GPUs and torch are stand-ins; tests/cluster/test_first_cluster.py has hosts."""

import json
import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from common.errors import UserError
from pipeline import preflight
from pipeline.distributed.rendezvous import reserve_port
from pipeline.preflight import problems_of_host as problems
from pipeline.preflight import read_environment, read_hostfile
from pipeline.run import facts
from tests.pipeline.conftest import REPOSITORY
from tests.pipeline.stand_ins import nvidia_smi, torch_package

NOTHING: dict[str, Any] = {"data": [], "beacon": None, "connect": None, "listen": 0}


def ask(tmp_path: Path, listed: int, usable: int, broken: tuple[str, ...] = (), gpus: bool = True) -> dict[str, Any]:
    """The answer of a host with such GPUs."""
    path = f"{nvidia_smi(tmp_path / 'bin', listed, 'Default')}:{os.environ['PATH']}"
    package = torch_package(tmp_path / "package", usable, broken)
    words = [sys.executable, "-m", "pipeline.preflight", "--answer", json.dumps({**NOTHING, "gpus": gpus})]
    environment = os.environ | {"PATH": path, "PYTHONPATH": f"{package}:{REPOSITORY}"}
    ended = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    return json.loads(ended.stdout)


@pytest.mark.parametrize(
    ("usable", "broken", "expected"),
    [
        (2, (), []),
        (2, ("cuda:1",), ["torch cannot compute on its GPUs: CUDA error: uncorrectable ECC error; see `nvidia-smi`"]),
        (0, (), ["is too old (found version 12020); install a driver and a build of torch"]),
        (1, (), ["has 1 GPU, and 2 slots in the hostfile"]),
    ],
)
def test_each_gpu_computes_a_product(tmp_path: Path, usable: int, broken: tuple[str, ...], expected: list[str]) -> None:
    found = ask(tmp_path, 2, usable, broken)
    lines = problems(2, found, found["facts"], needs_gpus=True)
    assert [part for part, line in zip(expected, lines, strict=True) if part in line] == expected


def test_a_host_without_a_compiler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "gpus_of_driver", lambda: ["GPU 0"])
    monkeypatch.setattr(preflight, "lines_of", lambda *_, **__: ["computes"])
    monkeypatch.setattr(preflight, "missing_for_compilation", lambda: "torch.compile needs a C compiler (gcc)")
    count, (line,) = preflight._try_gpus()
    assert count == 1
    assert line == "torch.compile needs a C compiler (gcc); install what is missing, or train with --compile off"


def test_a_host_that_trains_on_its_processor_is_not_asked_for_gpus(tmp_path: Path) -> None:
    found = ask(tmp_path, 2, 0, gpus=False)
    assert problems(1, found, found["facts"], needs_gpus=False) == []
    (line,) = problems(5000, found, found["facts"], needs_gpus=False)
    assert "and 5,000 slots in the hostfile" in line


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], dict[str, Any]]:
    """The answer of a host that is asked by an `ssh` with these lines of shell."""

    def ask(script: str) -> dict[str, Any]:
        (tmp_path / "ssh").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "ssh").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        return preflight.answer_of(preflight._start("node1", {}, {**NOTHING, "gpus": False}))

    return ask


def test_the_greeting_of_a_host_is_no_answer(asked: Callable[[str], dict[str, Any]]) -> None:
    greeting = 'echo Welcome\necho "{ node 7 }"\nprintf "\\\\374\\\\n"'
    found = asked(f'{greeting}\nfor word; do :; done\nexec sh -c "$word"')
    assert (found["problems"], found["facts"]["Python"]) == ([], {"": platform.python_version()})


@pytest.mark.parametrize(
    ("status", "line"),
    [
        (255, "cannot be reached by ssh without a password (Permission denied); start it, or set up the key"),
        (1, "cannot run the preflight (Permission denied); make checkout and environment there as they are here"),
    ],
)
def test_a_host_that_gives_no_answer_is_a_problem(asked: Callable[[str], Any], status: int, line: str) -> None:
    found = asked(f"echo Permission denied >&2\nexit {status}")
    assert problems(8, found, {}, needs_gpus=True) == [line]


def test_the_variables_here_win_over_those_at_home(tmp_path: Path) -> None:
    home, here = tmp_path / "home", tmp_path / "here"
    for directory in (home, here):
        directory.mkdir()
    (home / ".deepspeed_env").write_text("A=1\nB=b=c\nexport C=\n")
    (here / ".deepspeed_env").write_text(" A = 2 \n")
    assert read_environment(home, here) == {"A": "2", "B": "b=c", "C": ""}
    for line in ("", "# comment", "# NCCL_DEBUG=INFO", "A", "A B=1", "Ä=1", "A=\x1b[2J"):
        (here / ".deepspeed_env").write_text(f"A=1\n{line}\n")
        with pytest.raises(UserError, match=r"line 2: .* is not NAME=value"):
            read_environment(home, here)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("node1 slots=8\nnode2\n", "line 2: 'node2' is not a new host and 1 to 1024 slots"),
        ("node1 slots=8\nnode1 slots=8\n", "line 2: 'node1 slots=8' is not a new host"),
        ("# nothing\n\n", "names no host"),
    ],
)
def test_a_hostfile_that_deepspeed_cannot_read(tmp_path: Path, content: str, message: str) -> None:
    hostfile = tmp_path / "hostfile"
    hostfile.write_text(content)
    with pytest.raises(UserError, match=message):
        read_hostfile(hostfile)


NOT_NEEDED_TO_TRAIN = {"tests", "benchmarks", "albert_pretraining"}


def test_every_package_is_compared_between_hosts() -> None:
    packages = {path.parent.name for path in REPOSITORY.glob("*/__init__.py")} - NOT_NEEDED_TO_TRAIN
    assert {"common", "pipeline"} <= packages
    assert packages <= set(facts.SOURCES)
    listed = subprocess.run(["git", "ls-files", *packages], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert {Path(name).suffix for name in listed.stdout.splitlines()} <= set(facts.SUFFIXES)
    assert ".toml" in facts.SUFFIXES  # they decide what text data_prep makes


def test_capitals_of_the_accelerator_do_not_count() -> None:
    args = preflight.parser().parse_all([])
    found = [preflight._question(args, {"DS_ACCELERATOR": name}, None)["gpus"] for name in ("CPU", "cuda")]
    assert found == [False, True]


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


def test_an_output_that_is_a_file_and_data_that_are_not_here_are_one_line(on_the_processor, tmp_path, refusal):
    (tmp_path / "file").touch()
    (tmp_path / "hostfile").write_text("localhost slots=1\n")
    said = refusal(preflight.main, "--hostfile", tmp_path / "hostfile", "--output", tmp_path / "file")
    assert said.startswith(f"error: cannot write to {tmp_path / 'file'}: Not a directory; choose another")
    said = refusal(preflight.main, "--data", tmp_path, "--master_port", reserve_port())
    assert f"{tmp_path} holds no shards on this host" in said


def test_ssh_and_pdsh_must_be_here(monkeypatch, tmp_path, capsys, refusal):
    (tmp_path / "hostfile").write_text("node1 slots=1\nnode2 slots=1\n")
    words = ["--hostfile", str(tmp_path / "hostfile")]
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "ssh, by which hosts are asked, is not installed here" in refusal(preflight.main, *words)
    (tmp_path / "ssh").write_text("#!/bin/sh\nexit 255\n")
    (tmp_path / "ssh").chmod(0o755)
    assert preflight.main(words) == 1
    assert capsys.readouterr().out.startswith("this host: no pdsh, by which deepspeed starts the others")


def test_shards_that_are_cut_off_are_one_line(on_the_processor, tmp_path, corpus, refusal):
    shutil.copytree(corpus.train, tmp_path / "shards")
    os.truncate(tmp_path / "shards" / "shard-00000.arrow", 10)
    cut = tmp_path / "shards"
    for words in (["--data", cut], ["--eval-data", cut], ["--data", corpus.train, "--eval-data", cut]):
        said = refusal(preflight.main, *words, "--master_port", reserve_port())
        assert "shard-00000.arrow is missing or does not have " in said


def test_data_that_the_start_would_refuse_are_refused(on_the_processor, corpus, refusal):
    said = refusal(preflight.main, "--data", f"{corpus.train}:x", "--master_port", reserve_port())
    assert "'x' is not a weight" in said
    words = ["--data", corpus.train, "--eval-data", corpus.train, "--master_port", reserve_port()]
    assert f"--eval-data {corpus.train} holds documents of --data {corpus.train}" in refusal(preflight.main, *words)


def test_data_are_checked_where_torch_does_not_start(on_the_processor, corpus, tmp_path):
    (tmp_path / "torch.py").write_text('raise ImportError("libcudart.so.13")\n')
    words = ["-m", "pipeline.preflight", "--data", corpus.train, "--eval-data", corpus.held_out]
    words = [sys.executable, *map(str, words), "--master_port", str(reserve_port())]
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{REPOSITORY}"}
    ended = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ": ready (" in ended.stdout
