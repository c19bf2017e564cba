"""What happens to a save in the background when training ends early."""

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.checkpoint import saver
from pipeline.training.saves import Saves
from pipeline.training.training_run import TrainState


@pytest.mark.parametrize(("error", "waits"), [(KeyboardInterrupt, False), (RuntimeError, True)])
def test_a_second_ctrl_c_does_not_wait_for_the_disk(tmp_path: Path, error: type[BaseException], waits: bool) -> None:
    disk = threading.Event()
    settings: Any = SimpleNamespace(flags=SimpleNamespace(output=tmp_path, save_mode="background"), kept_checkpoints=1)
    run: Any = SimpleNamespace(settings=settings, engine=None, state=TrainState())
    saves = Saves(run, lambda checkpoint: None)
    writes = saver._run(lambda: disk.wait(600.0), in_thread=True)
    saves._saver._save = SimpleNamespace(writing=writes)  # type: ignore[assignment]
    if waits:
        threading.Timer(0.2, disk.set).start()
    with pytest.raises(error), saves:
        raise error
    assert writes.done() == waits
    disk.set()
    writes.result(600.0)
