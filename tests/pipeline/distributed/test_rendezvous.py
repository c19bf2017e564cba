"""The address of rank 0, which must be resolved before the ranks can meet, and the servers that they connect to."""

import json
import socket
import threading

import pytest

from common.errors import UserError
from pipeline.distributed import rendezvous
from pipeline.training import launch

USUAL_SECONDS = rendezvous.RESOLVE_SECONDS


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "RESOLVE_SECONDS", 0.2)
    monkeypatch.setattr(rendezvous, "_RETRY_SECONDS", 0.01)


def test_the_wait_is_shorter_than_a_minute() -> None:
    assert USUAL_SECONDS < 60


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost", "::1"])
def test_addresses_of_this_host(address: str) -> None:
    rendezvous.check_address(address)


@pytest.mark.parametrize("address", ["no-such-host.invalid", "x" * 300, "a..b", "."])
def test_an_unknown_address_is_named(address: str) -> None:
    with pytest.raises(UserError, match=rf"MASTER_ADDR is '{address[:80]}', and host \S+ cannot resolve it \("):
        rendezvous.check_address(address)


def test_a_name_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *arguments: over.wait(60))
    with pytest.raises(UserError, match=r"cannot resolve it \(no answer\)"):
        rendezvous.check_address("node1")
    over.set()


def test_a_name_that_comes_late_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "RESOLVE_SECONDS", 60.0)
    answers = iter([socket.gaierror(-2, "Name or service not known")] * 3)

    def resolve(*arguments: object) -> None:
        for error in answers:
            raise error

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    rendezvous.check_address("node1")
    assert list(answers) == []


@pytest.mark.parametrize("world_size", ["1", "2"])
def test_a_command_ends_with_one_line_and_status_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], world_size: str
) -> None:
    variables = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": world_size, "MASTER_PORT": "29500"}
    for name, value in {**variables, "MASTER_ADDR": "no-such-host.invalid"}.items():
        monkeypatch.setenv(name, value)

    def prepare(world_size: int) -> launch.Checked:
        pytest.fail("the ranks cannot have met")

    assert launch.run(prepare, lambda checked: 0) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith("error: the environment variable MASTER_ADDR is 'no-such-host.invalid'")


def test_a_rank_whose_run_is_finished_differs_from_one_that_would_train() -> None:
    training = {"the run in /runs/base": "not there", "the setting seed": "1"}
    answers = [
        {"host": "node1", "problem": "", "facts": training},
        {"host": "node2", "problem": "", "facts": {"the run in /runs/base": "finished"}},
    ]
    line = rendezvous._first_problem(answers)
    assert line.startswith("rank 1 on host node2: the run in /runs/base is finished, and not there on host node1; all")
    assert rendezvous._first_problem(answers[:1] * 2) == ""
    assert "the setting seed is not known, and 1 on" in rendezvous._first_problem(
        [answers[0], {"host": "node2", "problem": "", "facts": {"the run in /runs/base": "not there"}}]
    )


def test_a_rank_that_cannot_connect_says_what_to_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    """As behind a firewall: the store's port is open, those of the other servers are not."""
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    other = object.__new__(rendezvous.Rendezvous)
    monkeypatch.setattr(other, "ask", lambda name: json.dumps([port, "token"]))
    with pytest.raises(UserError, match=rf"cannot connect to port {port} of 127\.0\.0\.1 \(.*; allow TCP connections"):
        other.connect("liveness")
