"""The stacks of a process that was stopped while it worked, as by a debugger or SIGSTOP."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipeline.distributed.monitor import stacks

WORKS = """
import sys, threading, time
from pipeline.distributed.monitor import stacks

memory = stacks.register()
for _ in range(4):
    threading.Thread(target=lambda: [time.sleep(0.0005) for _ in iter(int, 1)], daemon=True).start()

def deep(calls):  # so deep that Python gets and gives back memory for frames all the time
    return deep(calls - 1) if calls else 0

print(memory, flush=True)
while True:
    deep(800)
"""


@pytest.mark.slow
def test_it_survives_that_its_stacks_are_written(monkeypatch):
    """Another thread would walk the frames of the main thread while it runs on, and crash within a few attempts."""
    monkeypatch.setattr(stacks, "_SETTLED_SECONDS", 0.02)
    root = Path(__file__).resolve().parents[4]
    process = subprocess.Popen([sys.executable, "-c", WORKS], cwd=root, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        memory = os.open(f"/proc/{process.pid}/fd/{int(process.stdout.readline())}", os.O_RDONLY)
        for _ in range(20):
            process.send_signal(signal.SIGSTOP)
            time.sleep(0.02)
            assert "Current thread" in stacks.collect(process.pid, memory, 5.0)
            assert process.poll() is None, "it has crashed"
        os.close(memory)
    finally:
        process.kill()
        process.communicate()
