"""torchrun's elastic agent on three hosts: one dies, one is cut off and comes back, and the run goes on."""

import contextlib
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
        self.logs = {host.name: folder / f"{host.name}.log" for host in hosts}
        for log in self.logs.values():
            log.touch()
        self.mark()
        self.processes = {host.name: self._start(host) for host in hosts}

    def _start(self, host):
        is_host = int(host.address == self._store)  # else torchrun asks for the address of each host's own name
        torchrun = [
            sys.executable, "-m", "torch.distributed.run", "--nnodes", "1:3", "--nproc-per-node", "1",
            "--max-restarts", "20", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"{self._store}:{PORT}",
            "--rdzv-id", "elastic", "--rdzv-conf", f"{RENDEZVOUS},is_host={is_host}", "--local-addr", host.address,
            *self._words,
        ]  # fmt: skip
        until_done = 'log=$1; shift; until "$@" >>"$log" 2>&1; do sleep 1; done'
        variables = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "LOGLEVEL": "INFO"}
        return self._cluster.popen(host, "sh", "-c", until_done, "sh", self.logs[host.name], *torchrun, **variables)

    def rank(self, host):
        """The process of the rank on a host."""
        started = psutil.Process(self.processes[host.name].pid).children(recursive=True)
        of_rank = [process for process in started if "LOCAL_RANK" in process.environ()]
        (rank,) = (process for process in of_rank if "pipeline.pretrain" in process.cmdline())
        return rank

    def kill(self, host):
        """Kills torchrun on a host that is cut off.

        Its agent waits for the store, and may fail at the moment when the link is back. It would then close the
        rendezvous for all hosts.
        """
        for process in psutil.Process(self.processes[host.name].pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):  # it has ended already
                if process.cmdline()[1:3] == ["-m", "torch.distributed.run"]:
                    process.kill()

    def said(self):
        """What all hosts have printed."""
        return "\n".join(f"== {name}\n{log.read_text()}" for name, log in self.logs.items())

    def wait(self, holds, what):
        deadline = time.monotonic() + 240
        while not holds():
            assert time.monotonic() < deadline, f"never: {what}\n{self.said()}"
            time.sleep(0.02)

    def wait_for(self, text, *hosts):
        """Waits until one of the hosts prints `text`, behind what an earlier `mark` has passed."""

        def is_printed():
            return any(text in self.logs[host.name].read_text()[self._marks[host.name] :] for host in hosts)

        self.wait(is_printed, text)

    def mark(self):
        """Passes all that has been printed."""
        self._marks = {name: len(log.read_text()) for name, log in self.logs.items()}

    def finish(self, host):
        """Waits until torchrun ends with 0 on a host."""
        self.wait(lambda: self.processes[host.name].poll() is not None, f"the end of {host.name}")
        assert self.processes[host.name].returncode == 0, self.said()


@pytest.fixture
def hosts(cluster):
    """Three hosts. torchrun gives the ranks in the order of their addresses, so rank 0 is on the first."""
    made = [cluster.start(name) for name in ("first", "second", "third")]
    yield sorted(made, key=lambda host: host.address)
    for host in made:
        host.inside.end()


def wait_for_newer_checkpoint(agents, output):
    step = newest(output)
    agents.wait(lambda: newest(output) > step, f"a checkpoint after step {step}")


def test_what_is_left_goes_on_and_who_comes_back_is_taken_in(cluster, hosts, corpus, config, alone, tmp_path):
    """The first host, which has rank 0, dies. Then the second one is cut off, and its link comes back.

    The store of the rendezvous is on the third. 16 rows a step go to 3, 2, 1 and 2 ranks.
    """
    output, (first, second, third) = tmp_path / "run", hosts
    more = ["--precision", "fp32", "--steps", STEPS, "--log-interval", "1", "--save-interval", "1"]
    words = command(corpus, config, output, *map(str, more), "--host-timeout", "6")
    words += ["--hang-timeout", "0"]  # a rank is suspended below
    agents = Agents(cluster, hosts, ["-m", *words[words.index("--module") + 1 :]], tmp_path)
    agents.wait_for("16 rows = 3 x 2 accumulated x 3 ranks - 2 empty", first)
    wait_for_newer_checkpoint(agents, output)

    first.inside.end()
    agents.wait_for("accumulated x 2 ranks", second, third)
    wait_for_newer_checkpoint(agents, output)

    agents.mark()
    cluster.unplug(second)
    agents.wait_for("accumulated x 1 rank;", third)
    wait_for_newer_checkpoint(agents, output)
    rank = agents.rank(third)
    rank.suspend()  # or it would reach the last step before the other host is back

    agents.kill(second)
    cluster.plug_in(second)
    agents.wait_for("new nodes from group_rank", third)  # its agent has asked the rank to stop
    rank.resume()
    agents.wait_for("stopped by SIGTERM and saved", third)
    for host in (second, third):
        agents.finish(host)
    assert agents.said().count("accumulated x 2 ranks") >= 2
    assert_same(output, alone)
