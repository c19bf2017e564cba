"""The address of rank 0, its servers, its open files and its port."""

import os
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from torch.distributed import DistNetworkError, TCPStore

from common.errors import UserError
from pipeline.distributed import rendezvous
from pipeline.distributed.exits import EXIT_LOST
from pipeline.distributed.rendezvous import Answer, Rendezvous, reserve_port
from pipeline.engine.ranks import become_single_rank
from pipeline.run import launch
from tests.pipeline.conftest import run

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

    def parse(words: Sequence[str]) -> None:
        pytest.fail("the ranks cannot have met")

    assert launch.run_command(parse, "pipeline.pretraining.command", []) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith("error: the environment variable MASTER_ADDR is 'no-such-host.invalid'")


def test_a_rank_whose_run_is_finished_differs_from_one_that_would_train() -> None:
    training = {"the run in /runs/base": "not there", "the setting seed": "1"}
    answers = [
        Answer("node1", "", training),
        Answer("node2", "", {"the run in /runs/base": "finished"}),
    ]
    line = rendezvous._first_problem(answers)
    assert line.startswith("rank 1 on host node2: the run in /runs/base is finished, and not there on host node1; all")
    assert rendezvous._first_problem(answers[:1] * 2) == ""
    assert "the setting seed is not known, and 1 on" in rendezvous._first_problem(
        [answers[0], Answer("node2", "", {"the run in /runs/base": "not there"})]
    )


def test_a_rank_that_cannot_connect_says_what_to_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    """As behind a firewall: the store's port is open, those of the other servers are not."""
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    other = object.__new__(rendezvous.Rendezvous)
    monkeypatch.setattr(other, "ask", lambda name, kind: port)
    with pytest.raises(UserError, match=rf"cannot connect to port {port} of 127\.0\.0\.1 \(.*; allow TCP connections"):
        other.connect(30.0)


def test_the_soft_limit_of_open_files_is_raised_to_the_hard_one() -> None:
    code = (
        "import resource; from pipeline.distributed import rendezvous\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 2000))\n"
        "rendezvous.raise_file_limit(); print(resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    assert run(sys.executable, "-c", code).stdout == "(2000, 2000)\n"


def test_a_reserved_port_is_given_to_nobody_else_and_the_store_listens_on_it() -> None:
    port = reserve_port()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))
    store = TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False, multi_tenant=True)
    assert store.add("count", 1) == 1


def test_a_single_rank_keeps_its_port_until_its_store_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "1")  # so that monkeypatch puts back what was there
        monkeypatch.delenv(name)
    become_single_rank()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", int(os.environ["MASTER_PORT"])))


@pytest.fixture
def meet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[int, str], Rendezvous]:
    """Makes a rank of two, with a secret or none; call it for rank 0 first."""
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(reserve_port()))
    monkeypatch.setenv("WORLD_SIZE", "2")

    def meet_as(rank: int, secret: str) -> Rendezvous:
        monkeypatch.setenv("RANK", str(rank))
        (tmp_path / "secret").write_text(secret)
        (tmp_path / "secret").chmod(0o600)
        monkeypatch.setenv(rendezvous.SECRET_FILE, str(tmp_path / "secret") if secret else "")
        return Rendezvous(seconds=60.0)

    return meet_as


def test_what_is_not_signed_with_the_secret_is_not_believed(meet: Callable[[int, str], Rendezvous]) -> None:
    """A stranger may read and write the store, and has another secret or none."""
    first, second, stranger = meet(0, "0123456789abcdef"), meet(1, "0123456789abcdef"), meet(1, "")
    first.tell("job's word", "value")
    assert second.ask("job's word", str) == "value"
    second._store, stranger._store = first._store, first._store  # each rank has a prefix of its own in this process
    for name in ("server", "verdict"):
        stranger.tell(name, 7)
        with pytest.raises(UserError, match=f"{name} in the store at MASTER_ADDR is not signed with this job's secret"):
            second.ask(name, int)
    stranger.tell("answer/1", {"host": "a", "problem": "\x1b[2J"})
    assert "is not signed with" in first._read_answer(1).problem
    second.tell("verdict", {"host": "a"})
    first._store.set("answer/1", first._store.get("verdict"))
    assert "is not signed with" in first._read_answer(1).problem, "it was signed under another name"
    second.tell("answer/1", {"host": 7})
    assert "answer/1 in the store at MASTER_ADDR has host = 7" in first._read_answer(1).problem
    second.tell("answer/1", {"host": "a"})
    assert first._read_answer(1) == Answer("a")
    first._store.set("answer/1", "x" * (rendezvous._MAX_BYTES + 1))
    assert "is not signed with" in first._read_answer(1).problem


def test_the_secret_never_travels(meet: Callable[[int, str], Rendezvous]) -> None:
    first = meet(0, "0123456789abcdef")
    first.tell("word", "value")
    server, key = first.serve()
    server.close()
    stored = b"".join(first._store.get(name) for name in ("job", "word", "server"))
    for hidden in (b"0123456789abcdef", key, key.hex().encode()):
        assert hidden not in stored


def test_a_secret_that_others_may_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "secret"
    monkeypatch.setenv(rendezvous.SECRET_FILE, str(path))
    with pytest.raises(UserError, match="secret"):
        rendezvous.read_secret()
    path.write_text("short\n")
    with pytest.raises(UserError, match="has 5 bytes; write at least 16"):
        rendezvous.read_secret()
    path.write_text("0123456789abcdef\n")
    path.chmod(0o640)
    with pytest.raises(UserError, match="may be read or written by others; chmod 600"):
        rendezvous.read_secret()
    path.chmod(0o600)
    assert rendezvous.read_secret() == b"0123456789abcdef"


def test_the_store_of_one_host_listens_on_the_loopback_address_only(monkeypatch: pytest.MonkeyPatch) -> None:
    port = reserve_port()
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}.items():
        monkeypatch.setenv(name, value)
    for _ in range(2):  # the same processes may meet again
        met = rendezvous.Rendezvous(seconds=60.0)
        met.tell("word", "value")
        assert met.ask("word", str) == "value"
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.2", port), timeout=60)


def test_ranks_meet_where_the_process_serves_a_store_of_torch_already(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after `init_process_group`: both find the one server of the process."""
    port = reserve_port()
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}.items():
        monkeypatch.setenv(name, value)
    earlier = TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False, multi_tenant=True)
    met = rendezvous.Rendezvous(seconds=60.0)
    met.tell("word", "value")
    assert earlier.check(["rendezvous/1/word"])


def test_a_rank_whose_rank_0_has_ended_says_so_in_one_line(
    meet: Callable[[int, str], Rendezvous], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Lost:
        def set_timeout(self, timeout: object) -> None:
            pass

        def lose(self, *arguments: object) -> bytes:
            raise DistNetworkError("Connection was likely closed.\nA stack follows")

        get = set = add = lose

    _serving, other = meet(0, ""), meet(1, "")
    monkeypatch.setattr(other, "_store", Lost())
    with pytest.raises(SystemExit) as ended:
        other.agree(lambda: 0, lambda found: {})
    assert ended.value.code == EXIT_LOST
    assert capsys.readouterr().err.startswith("error: lost rank 0 before the start (Connection was likely closed. A")
    with pytest.raises(UserError, match="lost rank 0 before training"):
        other.connect(30.0)
    other.leave()
