"""The stages of a save, by one rank with a made-up engine. test_checkpoints.py saves real engines on several ranks."""

import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from pipeline.checkpoint import files, save_and_load
from pipeline.checkpoint.checkpoint_manifest import check
from pipeline.checkpoint.files import load_weights, read_state, read_whole
from pipeline.checkpoint.retention import find_latest
from pipeline.checkpoint.save_and_load import Saver
from pipeline.engine.engine_state import TensorState
from pipeline.engine.lamb import TensorSlice

WEIGHTS = torch.arange(6.0)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An engine of one tensor "w" of 2 x 3 elements."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    flat = WEIGHTS.clone()
    values = {"weight": flat, "exp_avg": -flat, "exp_avg_sq": 2 * flat}
    slices = [TensorSlice("w", (2, 3), 0, 0, 6, flat, 0)]
    counts = dict.fromkeys(("step", "samples", "skipped_steps", "optimizer_steps", "zero_stage", "world_size"), 1)
    state = {**counts, "optimizer": "Lamb", "groups": [{"lr": 0.1}], "loss_scaler": None}
    monkeypatch.setattr(save_and_load.zero_layout, "process_group", lambda engine: dist.group.WORLD)
    monkeypatch.setattr(save_and_load.zero_layout, "slices", lambda engine: slices)
    monkeypatch.setattr(save_and_load.zero_layout, "owned_slices", lambda engine: slices)
    monkeypatch.setattr(save_and_load.engine_state, "engine_state", lambda engine: state)
    monkeypatch.setattr(save_and_load.engine_state, "tensor_states", lambda engine, _: [TensorState(slices[0], values)])
    yield SimpleNamespace(global_steps=2, values=values)
    dist.destroy_process_group()


@pytest.mark.parametrize("in_background", [True, False])
def test_a_checkpoint_holds_what_the_engine_had_when_the_save_began(
    engine: Any, tmp_path: Path, in_background: bool
) -> None:
    made = Saver(engine, tmp_path / "checkpoints", keep=1)
    for step, score in ((2, float("nan")), (3, 0.5), (4, None)):
        engine.global_steps = step
        engine.values["weight"].copy_(WEIGHTS + step)
        made.start({"number": step}, score, in_background)
        assert made.is_saving
        if in_background:
            engine.values["weight"].fill_(9.0)  # the next step of training
        saved = made.finish()
        assert saved.step == step
        assert saved.blocked_seconds > 0
        assert saved.seconds > 0
        assert not made.is_saving
        assert not made.is_writing
        tag = tmp_path / "checkpoints" / f"step-0000000{step}"
        assert check(tag).score == (0.5 if step == 3 else None)
        assert torch.equal(load_weights(tag)["w"], (WEIGHTS + step).view(2, 3))
        assert torch.equal(read_whole(tag, check(tag), "exp_avg_sq")["w"], 2 * WEIGHTS.view(2, 3))
        assert {path.stat().st_mode for path in tag.iterdir()} == {(tmp_path / "checkpoints" / "latest").stat().st_mode}
        state = read_state(tag)
        assert (state["client_state"], state["groups"]) == ({"number": step}, [{"lr": 0.1}])
    # The newest one and the best one remain.
    names = [path.name for path in sorted((tmp_path / "checkpoints").iterdir())]
    assert names == ["latest", "step-00000003", "step-00000004"]


def test_a_thread_writes_a_copy_and_a_caller_that_waits_writes_at_once(
    engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_write, write = threading.Event(), files.write_rank_file
    threads = []

    def write_slowly(*arguments: Any) -> Any:
        threads.append(threading.current_thread().name)
        assert may_write.wait(60.0)
        return write(*arguments)

    monkeypatch.setattr(files, "write_rank_file", write_slowly)
    made = Saver(engine, tmp_path / "checkpoints", keep=1)
    made.start({})
    assert made.is_writing
    threading.Timer(0.1, may_write.set).start()
    made.abandon()
    assert may_write.is_set(), "it is given up once the thread has ended"
    assert not made.is_saving
    assert find_latest(tmp_path / "checkpoints") is None
    made.start({}, in_background=False)
    made.finish()
    assert threads == ["save", "MainThread"]
