"""torchrun's elastic agent: a host dies, another one comes, and the run goes on."""

import sys
import time

import psutil
import pytest

from tests.cluster.conftest import STEPS
from tests.cluster.test_training import assert_same
from tests.pipeline.conftest import newest
from tests.pipeline.test_pretrain import command

PORT = 29400
# A host counts as dead 12 s after its last sign of life, and a start waits 6 s for more hosts.
RENDEZVOUS = "keep_alive_interval=1,keep_alive_max_attempt=12,last_call_timeout=6,read_timeout=10"


class Agents:
    """torchrun on some hosts. Each is started again when it fails, as a scheduler does. `logs` has a file a host."""

    def __init__(self, cluster, hosts, words, folder):
        self._cluster, self._words, self._folder = cluster, words, folder
        self._store = hosts[-1].address  # where the rendezvous has its store
        self.logs, self.processes = {}, {}
        for host in hosts:
            self.start(host)

    def start(self, host):
        is_host = int(host.address == self._store)  # else torchrun asks for the address of each host's own name
        torchrun = [
            sys.executable, "-m", "torch.distributed.run", "--nnodes", "1:2", "--nproc-per-node", "1",
            "--max-restarts", "20", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"{self._store}:{PORT}",
            "--rdzv-id", "elastic", "--rdzv-conf", f"{RENDEZVOUS},is_host={is_host}", "--local-addr", host.address,
            *self._words,
        ]  # fmt: skip
        until_done = 'log=$1; shift; until "$@" >>"$log" 2>&1; do sleep 1; done'
        variables = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "LOGLEVEL": "INFO"}
        log = self.logs[host.name] = self._folder / f"{host.name}.log"
        log.touch()
        self.processes[host.name] = self._cluster.popen(host, "sh", "-c", until_done, "sh", log, *torchrun, **variables)

    def rank(self, host):
        started = psutil.Process(self.processes[host.name].pid).children(recursive=True)
        of_rank = [process for process in started if "LOCAL_RANK" in process.environ()]
        (rank,) = (process for process in of_rank if "pipeline.pretrain" in process.cmdline())
        return rank

    def said(self):
        return "\n".join(f"== {name}\n{log.read_text()}" for name, log in self.logs.items())

    def wait(self, holds, what):
        deadline = time.monotonic() + 1500
        while not holds():
            assert time.monotonic() < deadline, f"never: {what}\n{self.said()}"
            time.sleep(0.02)

    def wait_for(self, text, host):
        self.wait(lambda: text in self.logs[host.name].read_text(), text)

    def finish(self, host):
        self.wait(lambda: self.processes[host.name].poll() is not None, f"the end of {host.name}")
        assert self.processes[host.name].returncode == 0, self.said()


@pytest.fixture
def hosts(cluster):
    """Three hosts. torchrun gives the ranks in the order of their addresses, so rank 0 is on the first."""
    made = [cluster.start(name) for name in ("first", "second", "third")]
    yield made
    for host in made:
        host.inside.end()


def test_what_is_left_goes_on_and_who_comes_is_taken_in(cluster, hosts, corpus, config, alone, tmp_path):
    """The first host, which has rank 0, dies; a third one comes. 16 rows a step go to 2, 1 and 2 ranks.

    The store of the rendezvous is on the second.
    """
    output, (first, second, third) = tmp_path / "run", hosts
    more = ["--precision", "fp32", "--steps", STEPS, "--log-interval", "1", "--save-interval", "1"]
    words = command(corpus, config, output, *more, "--host-timeout", 6)
    words += ["--hang-timeout", "0"]  # a rank is suspended below
    agents = Agents(cluster, [first, second], ["-m", *words], tmp_path)
    agents.wait_for("accumulated x 2 ranks", first)
    agents.wait(lambda: newest(output) > 0, "a checkpoint of two hosts")
    first.inside.end()
    agents.wait_for("accumulated x 1 rank;", second)
    rank = agents.rank(second)
    rank.suspend()  # or it would reach the last step before the other host is there
    agents.start(third)
    agents.wait_for("new nodes from group_rank", second)  # its agent has asked the rank to stop
    rank.resume()
    agents.wait_for("stopped by SIGTERM and saved", second)
    for host in (second, third):
        agents.finish(host)
    assert agents.said().count("accumulated x 2 ranks") == 2
    assert_same(output, alone)
