"""How a run under `deepspeed` ends: Ctrl-C in a terminal, and a kill of the `deepspeed` command alone."""

import contextlib
import os
import pty
import shlex
import signal
import subprocess
import threading
import time

import psutil
import pytest

from tests.pipeline.conftest import REPOSITORY
from tests.pipeline.test_pretrain import command, config, ranks_of

pytestmark = pytest.mark.slow

__all__ = ["config"]


def test_a_kill_of_the_launcher_alone_stops_and_saves(corpus, config, tmp_path):
    output = tmp_path / "run"
    words = command(corpus, config, output, "--steps", "100000", "--warmup-steps", "10", "--save-interval", "100000")
    words[words.index("--eval-interval") + 1] = "100000"
    said = tmp_path / "said"
    with said.open("w") as file:
        launcher = subprocess.Popen(
            words, cwd=REPOSITORY, env={**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"},
            stdout=file, stderr=subprocess.STDOUT,
        )  # fmt: skip
        while "/100000  loss" not in said.read_text():
            assert launcher.poll() is None, said.read_text()
            time.sleep(0.05)
        ranks = ranks_of(launcher)
        launcher.terminate()
        launcher.wait()
        _gone, alive = psutil.wait_procs(ranks, timeout=300)
    assert not alive
    text = said.read_text()
    assert f"the launcher (deepspeed, process {launcher.pid}) has ended, so this run stops" in text
    assert "stopped by SIGTERM and saved at step" in text
    assert "Traceback" not in text
    assert list((output / "checkpoints").glob("step-*"))


class Terminal:
    """An interactive shell in a terminal of its own."""

    def __init__(self, **environment):
        self.pid, self._descriptor = pty.fork()
        if self.pid == 0:
            os.chdir(REPOSITORY)
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], {**os.environ, **environment})
        self.said = ""
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        with contextlib.suppress(OSError):  # the shell has ended
            while part := os.read(self._descriptor, 1 << 16):
                self.said += part.decode(errors="replace")

    def type(self, keys):
        os.write(self._descriptor, keys.encode())

    def shows(self, text, after=0):
        """Waits until the terminal shows `text` behind the place `after`."""
        deadline = time.monotonic() + 200
        while text not in self.said[after:]:
            assert time.monotonic() < deadline, self.said
            time.sleep(0.05)

    def close(self):
        os.kill(self.pid, signal.SIGKILL)  # what is still in its foreground gets SIGHUP
        os.waitpid(self.pid, 0)


def test_ctrl_c_in_a_terminal_saves_and_prints_no_traceback(corpus, config, tmp_path):
    """Ctrl-Z stops the job before, and `fg` continues it."""
    words = command(corpus, config, tmp_path / "run", "--steps", "100000", "--warmup-steps", "10")
    words[words.index("--eval-interval") + 1] = "100000"
    shell = Terminal(DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1", PS1="$ ")
    try:
        shell.type(f"{shlex.join(words)}\n")
        shell.shows("/100000  loss")
        shell.type("\x1a")
        shell.shows("Stopped")
        place = len(shell.said)
        shell.type("fg\n")
        shell.shows("/100000  loss", after=place)
        place = len(shell.said)
        shell.type("\x03")
        shell.shows("saved at step", after=place)
        shell.type("echo the status is $?\n")
        shell.shows("the status is 75", after=place)
        ended = shell.said[place:]
    finally:
        shell.close()
    assert "; again to quit now" in ended
    assert "Traceback" not in ended
    assert "KeyboardInterrupt" not in ended
