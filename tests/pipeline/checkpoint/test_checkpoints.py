"""Checkpoints are complete or absent, and load on any number of ranks, at any ZeRO stage and in any precision."""

import signal
import time

import pytest
import torch
from torch import Tensor

from pipeline.checkpoint.files import load_weights, read_state
from pipeline.checkpoint.retention import find_latest, tag_name, tags
from tests.pipeline.workers import checkpoints as saves
from tests.pipeline.workers import processes, training
from tests.pipeline.workers.checkpoints import SAVED_AT, Setup, save_after_each_step

pytestmark = pytest.mark.slow

LAST = 16

# An optimizer whose update depends on the number of steps it has made.
ADAMW = (("optimizer", {"type": "AdamW", "params": {"lr": 0.01, "torch_adam": True}}),)
# The sums of the presets in fp16.
FP32_SUMS = (("data_types", {"grad_accum_dtype": "fp32"}), ("communication_data_type", "fp32"))

SETUPS = [
    *[Setup(stage) for stage in range(4)],
    *[Setup(stage, "bf16") for stage in range(4)],
    Setup(1, "fp16"),
    Setup(3, "fp16"),
    *[Setup(stage, "fp32", ADAMW) for stage in (0, 2, 3)],
    *[Setup(stage, "fp16", FP32_SUMS) for stage in (1, 2, 3)],
]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Two ranks save at step SAVED_AT, each setup into a directory of its own, and go on.

    The directory; each setup's run without and with an interruption; the weights of another run, LAST steps long.
    """
    directory = tmp_path_factory.mktemp("saved")
    return directory, *processes.run(2, saves.stop_and_go_on, directory, SETUPS, LAST, scratch=directory)


def same_bits(found: dict[str, dict[str, Tensor]], wanted: dict[str, dict[str, Tensor]]) -> bool:
    return all(torch.equal(found[kind][name], tensor) for kind in wanted for name, tensor in wanted[kind].items())


def test_a_resume_on_the_same_ranks_is_bitwise(saved):
    for setup, (straight, resumed) in zip(SETUPS, saved[1]):
        assert resumed[0] == straight[0], setup
        assert same_bits(resumed[1], straight[1]), setup
        assert resumed[2] == straight[2], setup
        if setup.precision == "fp16":
            assert straight[2][5]["cur_scale"] > 2**8  # the loss scale had something to restore


# Indices of SETUPS (saved on two ranks, loaded), by the number of ranks that load: every stage from and to another in
# fp32, and every stage to 16 bits and back.
ON = {
    1: [(0, 0), (3, 3), (0, 4), (1, 7), (2, 6), (3, 5), (4, 1), (5, 3), (7, 0), (8, 1), (0, 9)],
    3: [(0, 1), (1, 2), (2, 3), (3, 0), (0, 3), (3, 3), (10, 12), (12, 11), (13, 15), (14, 0)],
}


@pytest.mark.parametrize("world", ON)
def test_any_checkpoint_goes_on_anywhere(world, saved, tmp_path):
    directory, outcomes, _ = saved
    work = [(directory / SETUPS[source].folder, SETUPS[target]) for source, target in ON[world]]
    loads = processes.run(world, saves.load_each, work, scratch=tmp_path)
    for (source, target), load in zip(ON[world], loads):
        before, after = SETUPS[source], SETUPS[target]
        weights = load_weights(directory / before.folder)
        assert same_bits({"weight": load.at_load["weight"]}, {"weight": weights}), (before, after)
        assert load.model_follows, (before, after)
        steps, samples, micro_steps, skipped, updates, _, rates = load.counters
        assert (steps, samples, micro_steps, skipped, updates) == (4, 48, 4, 0, 4)
        assert rates == [training.learning_rate(SAVED_AT - 1) * share for share in (1.0, 1.0, 0.5)]
        assert load.said == ""
        straight = outcomes[source][0][1]
        if before.precision == after.precision == "fp32":
            for kind in ("weight", "exp_avg", "exp_avg_sq"):
                assert training.difference(load.at_end[kind], straight[kind]) < 1e-5, (before, after, kind)


def test_the_state_says_what_ran(saved):
    tag = find_latest(saved[0] / Setup(3, "bf16").folder, content=True)
    assert tag.name == f"step-{SAVED_AT:08d}"
    state = read_state(tag)
    assert (state["step"], state["samples"], state["world_size"], state["zero_stage"]) == (4, 48, 2, 3)
    assert [group["weight_decay"] for group in state["groups"]] == [0.02, 0.0, 0.1]
    assert [group["betas"] for group in state["groups"]] == [[0.9, 0.999], [0.9, 0.999], [0.8, 0.99]]
    assert state["client_state"] == {"note": "é", "samples": 48}
    assert state["versions"]["torch"] == torch.__version__


def test_saves_and_loads_that_fail(tmp_path):
    found = processes.run(2, saves.faults, tmp_path / "faults", scratch=tmp_path)
    # A save that fails on one rank fails on all and leaves nothing.
    left = ["step-00000002"]
    assert found["rank 1 full"] == ("rank 1: [Errno 28] No space left on device", left)
    message, listing = found["not shared"]
    assert message.startswith("rank 1: ")
    assert message.endswith("the nodes must share the output directory")
    assert listing == left
    # Collectives of the device wait for it, and break off after ten minutes, which a slow disk may take.
    assert found["collectives of the engine"] == 0
    assert found["late"] < 1e-5, "a save in the background holds the weights of its beginning"
    assert found["stood for"] > 100, "the seconds before the save count"
    assert found["given up"] == (True, False), "it is given up once the thread has ended"
    # Damage is passed over and said.
    fourth = "step-00000004 is damaged (the content of rank-00001.safetensors has changed)"
    assert found["nothing there"] is None
    assert found["same step again"] == ({"number": 4}, 4, [])
    assert found["bit flipped"] == ({"number": 2}, 3, [f"checkpoint {fourth}; continuing from step-00000003"])
    state, step, lines = found["manifest too"]
    assert (state, step) == ({"number": 1}, 2)
    assert lines[0] == f"checkpoint {fourth}; continuing from step-00000002"
    assert lines[1].startswith("checkpoint step-00000003 is damaged (manifest.json ")
    assert found["weights"] < 1e-5
    message, step, _ = found["all damaged"]
    assert "no checkpoint in" in message
    assert "step-00000002 is damaged (the content of state.json has changed)" in message
    message, step, lines = found["another model"]
    assert "is of another model: another is absent there and (1,) here" in message
    assert (step, lines) == (0, [])


def test_killed_at_every_point_of_a_save_it_goes_on_to_the_same_weights(saved, tmp_path):
    """Two ranks save in the background after every step; the end is that of a run left alone."""
    directory, reached = tmp_path / "killed", 0
    for point in saves.POINTS:
        context = processes.start(2, save_after_each_step, directory, LAST, point, result=tmp_path / "never")
        while all(process.is_alive() for process in context.processes):
            time.sleep(0.02)
        assert -signal.SIGKILL in [process.exitcode for process in context.processes]
        for process in context.processes:
            process.kill()
            process.join()
        assert not (tmp_path / "never").exists()
        reached += 3 if point == "the retention" else 2
        newest = find_latest(directory, content=True)
        assert newest == directory / tag_name(reached), point
        kept = 3 if point == "the retention" else 2
        assert len(tags(directory)) == kept, point
    resumed = processes.run(2, save_after_each_step, directory, LAST, scratch=tmp_path)
    assert same_bits(resumed, saved[2])
    assert tags(directory)[0].name == tag_name(LAST)
    assert len(tags(directory)) == 2
