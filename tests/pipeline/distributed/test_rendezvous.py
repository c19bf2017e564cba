"""The ranks of a job meet: its address and port, and what the ranks agree on."""

import os
import socket
import sys
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from torch.distributed import TCPStore

from common.errors import UserError
from pipeline import pretrain
from pipeline.distributed import rendezvous
from pipeline.distributed.exits import EXIT_LOST, EXIT_MISTAKE
from pipeline.distributed.rendezvous import Rendezvous, find_rank, reserve_port
from pipeline.run import launch
from tests.pipeline.conftest import run
from tests.pipeline.finetuning.finetune_runs import be_no_rank

HOST = os.uname().nodename


@pytest.fixture
def be_rank(monkeypatch):
    """Sets the variables of a launcher."""

    def set_variables(rank=0, world_size=2, **more):
        own = {"RANK": rank, "LOCAL_RANK": 0, "WORLD_SIZE": world_size, "MASTER_ADDR": "127.0.0.1"}
        for name, value in (own | more).items():
            monkeypatch.setenv(name, str(value))

    return set_variables


@pytest.fixture(autouse=True)
def short(monkeypatch):
    assert rendezvous.RESOLVE_SECONDS < 60
    monkeypatch.setattr(rendezvous, "RESOLVE_SECONDS", 0.2)
    monkeypatch.setattr(rendezvous, "_RETRY_SECONDS", 0.01)


@pytest.mark.parametrize("address", ["no-such-host.invalid", "x" * 300, "a..b", ".", ""])
def test_an_unknown_address_is_named(address):
    with pytest.raises(UserError, match=rf"MASTER_ADDR is '{address[:80]}', and host \S+ cannot resolve it \("):
        rendezvous.check_address(address)


def test_a_name_that_comes_late_is_waited_for(monkeypatch):
    monkeypatch.setattr(rendezvous, "RESOLVE_SECONDS", 60.0)
    answers = iter([socket.gaierror(-2, "Name or service not known")] * 3)

    def resolve(*arguments):
        for error in answers:
            raise error

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    rendezvous.check_address("node1")
    assert list(answers) == []


def test_a_command_ends_with_one_line_and_status_2(be_rank, refusal):
    be_rank(MASTER_PORT=29500, MASTER_ADDR="no-such-host.invalid")
    said = refusal(lambda words: launch.run_command(pytest.fail, pretrain.make_tasks, words))  # the ranks never meet
    assert said.startswith("error: the environment variable MASTER_ADDR is 'no-such-host.invalid'")


def test_the_soft_limit_of_open_files_is_raised_to_the_hard_one():
    code = (
        "import resource; from pipeline.distributed import rendezvous\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 2000))\n"
        "rendezvous.raise_file_limit(); print(resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    assert run(sys.executable, "-c", code).stdout == "(2000, 2000)\n"


def test_the_port_of_a_single_rank_is_given_to_nobody_else_and_its_store_listens_on_it(monkeypatch, be_rank):
    be_no_rank(monkeypatch)
    find_rank()
    port = int(os.environ["MASTER_PORT"])
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))
    be_rank(world_size=1, MASTER_PORT=port)  # a launcher's, which another run on this host may have
    find_rank()
    assert int(os.environ["MASTER_PORT"]) != port
    store = TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False, multi_tenant=True)
    assert store.add("count", 1) == 1


@pytest.fixture
def meet(be_rank, monkeypatch):
    """Makes a rank of two; call it for rank 0 first."""
    monkeypatch.setenv("MASTER_PORT", str(reserve_port()))

    def meet_as(rank, seconds=60.0):
        be_rank(rank)
        return Rendezvous(seconds)

    return meet_as


@pytest.fixture
def agree():
    """Lets a rank agree in a thread of its own, with a fact, and a mistake or none."""
    with ThreadPoolExecutor() as pool:

        def start(rank, fact="7", mistake=""):
            def work():
                if mistake:
                    raise UserError(mistake)
                return fact

            return pool.submit(rank.agree, work, lambda found: {"the number": found})

        yield start


def status_of(ended: "Future[str]") -> object:
    error = ended.exception(timeout=1000)
    assert isinstance(error, SystemExit)
    return error.code


@pytest.mark.parametrize(
    ("own", "other", "line"),
    [
        ({}, {"mistake": "no data\x1b[2J"}, "error: rank 1 on host b: no data\\x1b[2J\n"),
        ({"mistake": "no data"}, {}, "error: rank 0 on host a: no data\n"),
        ({"mistake": "no data"}, {"mistake": "no data"}, "error: no data\n"),
        ({"mistake": "no data"}, {"mistake": "no disk"}, "error: rank 0 on host a: no data\n"),
        ({}, {"fact": "8"}, "error: rank 1 on host b: the number is 8, and 7 on host a; all hosts must see"),
    ],
)
def test_ranks_that_do_not_agree_end_with_one_line(meet, agree, capsys, own, other, line):
    first, second = meet(0), meet(1)
    first.hosts, second.hosts = ["a"], ["b"]
    ended = agree(first, **own), agree(second, **other)
    assert list(map(status_of, ended)) == [EXIT_MISTAKE, EXIT_MISTAKE]
    said = capsys.readouterr().err
    assert said.startswith(line)
    assert said.count("\n") == 1


def test_a_rank_that_never_comes_is_named(meet, agree, capsys):
    assert status_of(agree(meet(0, seconds=0.1))) == EXIT_LOST
    said = capsys.readouterr().err
    assert said.startswith(f"error: 1 of 2 ranks did not come within 0 s: 1; the others came from {HOST}; ")


def test_a_rank_0_that_never_comes_is_missed(meet, capsys):
    with pytest.raises(SystemExit) as ended:
        meet(1, seconds=0.5)
    assert ended.value.code == EXIT_LOST
    assert capsys.readouterr().err.startswith(f"error: rank 1 on host {HOST} found no rank 0 at 127.0.0.1")


def test_a_rank_0_that_never_decides_is_lost(meet, agree, capsys):
    _first, other = meet(0), meet(1, seconds=0.1)
    assert status_of(agree(other)) == EXIT_LOST
    assert "lost rank 0 before the start (wait timeout after 200ms" in capsys.readouterr().err


def test_on_one_host_rank_0_listens_on_the_loopback_address_only(meet):
    meet(0)
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.2", int(os.environ["MASTER_PORT"])), timeout=60)


LISTENS = """
import os, psutil
from pipeline.distributed.rendezvous import Rendezvous, find_rank
from pipeline.engine import workarounds
find_rank()
rendezvous = Rendezvous()
rendezvous.agree(lambda: None, lambda _: {})
workarounds.init_distributed("gloo")
listening = {one.laddr.ip for one in psutil.Process().net_connections() if one.status == "LISTEN"}
print(listening, *(os.environ.get(name) for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")))
"""


@pytest.mark.slow
def test_a_rank_alone_listens_on_the_loopback_address_only(monkeypatch):
    be_no_rank(monkeypatch)
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "eth7")
    assert run(sys.executable, "-c", LISTENS).stdout == "{'127.0.0.1'} lo eth7\n"


@pytest.mark.parametrize(("address", "ranks_here", "device"), [("127.0.0.2", 1, None), ("127.0.0.2", 2, "lo")])
def test_gloo_and_nccl_listen_on_the_loopback_if_all_ranks_are_on_one_host(be_rank, address, ranks_here, device):
    names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
    be_rank(MASTER_ADDR=address, MASTER_PORT=reserve_port(), LOCAL_WORLD_SIZE=ranks_here, **dict.fromkeys(names, ""))
    for name in names:
        del os.environ[name]
    Rendezvous()
    assert [os.environ.get(name) for name in names] == [device] * 2


def test_ranks_meet_where_the_process_serves_a_store_of_torch_already(meet):
    """As after `init_process_group`: both find the one server of the process."""
    port = int(os.environ["MASTER_PORT"])
    earlier = TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False, multi_tenant=True)
    meet(0)
    assert earlier.check(["jobs/0"])


@pytest.mark.parametrize(("restarts", "status"), [("0", EXIT_MISTAKE), ("3", EXIT_LOST)])
def test_a_port_of_another_program_is_named(meet, monkeypatch, capsys, restarts, status):
    """torchrun's agent chooses another port when it starts the ranks again, so there it is no mistake."""
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", restarts)
    with socket.create_server(("127.0.0.1", 0)) as other:
        monkeypatch.setenv("MASTER_PORT", str(other.getsockname()[1]))
        with pytest.raises(SystemExit) as ended:
            meet(0)
    assert ended.value.code == status
    assert (
        "; another job may run on this host: give the launcher another --master_port, before the module\n"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(("ranks", "variable", "seconds"), [(2, None, 302), (512, None, 812), (512, "60", 60)])
def test_rank_0_waits_longer_for_more_ranks_and_as_long_as_it_is_told(be_rank, ranks, variable, seconds):
    be_rank(world_size=ranks, MASTER_PORT=reserve_port(), **({"ALBERT_JOIN_SECONDS": variable} if variable else {}))
    assert Rendezvous().seconds == seconds
