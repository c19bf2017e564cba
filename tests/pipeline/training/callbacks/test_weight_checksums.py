"""Which rank is named, by the checksums of all ranks; and bits that flip in runs of three ranks."""

import json
import socket
from dataclasses import replace
from typing import Any

import pytest

from pipeline.checkpoint.retention import find_latest, tags
from pipeline.distributed.exits import EXIT_LOST
from pipeline.engine.checksums import RankChecksums
from pipeline.training.callbacks.weight_checksums import describe, wrong_tensors
from tests.pipeline.training.loop_runs import Run
from tests.pipeline.workers import processes
from tests.pipeline.workers.flipped_bits import Flip, run_flipped

DIVIDED = [RankChecksums(("a", "b"), {"weights": [10, 20]}, {}, [part, 2 * part], ()) for part in (7, 3, 0)]
"""Three ranks at stage 2: the rounded parts add up to 10 and 20."""
WHOLE = RankChecksums(("a", "b"), {"weights": [10, 20], "exp_avg": [5, 6]}, {}, [10, 20], ())
"""A rank at stage 0, whose fp32 weights round to 10 and 20."""


def with_weights(rank: RankChecksums, *weights: int, unequal: tuple[str, ...] = ()) -> RankChecksums:
    return replace(rank, replicas={**rank.replicas, "weights": list(weights)}, unequal=unequal)


def test_nothing_is_wrong_where_all_are_equal() -> None:
    assert wrong_tensors(DIVIDED) == {}
    assert wrong_tensors([WHOLE] * 3) == {}


def test_the_fp32_weights_decide_even_against_a_majority() -> None:
    other = with_weights(DIVIDED[2], 10, 21)
    assert wrong_tensors([*DIVIDED[:2], other]) == {2: ["b"]}
    assert wrong_tensors([DIVIDED[0], with_weights(DIVIDED[1], 10, 21), other]) == {1: ["b"], 2: ["b"]}
    assert wrong_tensors([WHOLE, with_weights(WHOLE, 11, 20)]) == {1: ["a"]}, "of two ranks"


def test_a_rank_whose_own_weights_do_not_fit_is_named_though_all_copies_are_equal() -> None:
    wrong = replace(DIVIDED[1], rounded=[4, 6], unequal=("a",))
    assert wrong_tensors([DIVIDED[0], wrong, DIVIDED[2]]) == {1: ["a"]}


def test_otherwise_the_majority_decides_and_of_two_ranks_both_are_named() -> None:
    in_fp32 = [replace(WHOLE, rounded=[weight, 20], replicas={"weights": [weight, 20]}) for weight in (10, 10, 11)]
    assert wrong_tensors(in_fp32) == {2: ["a"]}
    assert wrong_tensors(in_fp32[1:]) == {0: ["a"], 1: ["a"]}
    moments = replace(WHOLE, replicas={**WHOLE.replicas, "exp_avg": [5, 7]})
    assert wrong_tensors([moments, WHOLE, WHOLE]) == {0: ["exp_avg of b"]}


def test_of_two_ranks_the_one_whose_weights_contradict_each_other_is_named() -> None:
    replicas = {"weights": [10, 20], "fp32 weights": [31, 32]}
    good = RankChecksums(("a", "b"), replicas, {}, [10, 20], ())
    bad = RankChecksums(("a", "b"), {**replicas, "fp32 weights": [30, 32]}, {}, [12, 20], ("a",))
    assert wrong_tensors([good, bad]) == {1: ["a", "fp32 weights of a"]}


def test_the_line_names_ranks_hosts_and_tensors() -> None:
    line = describe({0: ["a"], 1: ["a", "b", "c", "d"]}, ["n0", "n1"], 20)
    assert line.startswith(
        "rank 0 on host n0 or rank 1 on host n1 holds wrong weights after step 20, in a, b, c, ...: "
    )


# At stage 0 a copy stays wrong until the next check; from stage 1 on each update writes it again.
NAMED = {
    "fp32 weights at stage 0": (0, Flip("fp32 weights", 1), "bf16"),
    "moments at stage 0": (0, Flip("moments", 1), "fp32"),
    "fp32 weights at stage 1": (1, Flip("fp32 weights", 2), "fp32"),
    "weights at stage 2": (2, Flip("weights", 2), "bf16"),
    "weights at stage 3": (3, Flip("weights", 2), "bf16"),
}
FLAGS = ("--steps", "6", "--log-interval", "2", "--save-interval", "4", "--eval-interval", "100")
AT_A_SAVE = Run("at a save", 3, 2, stage=0, flags=(*FLAGS, "--check-interval", "0"))


@pytest.mark.slow
def test_the_rank_with_a_flipped_bit_is_named_and_nothing_of_it_is_saved(corpus: Any, tmp_path: Any) -> None:
    runs = [Run(name, 3, 2, stage, flags=FLAGS, precision=precision) for name, (stage, _, precision) in NAMED.items()]
    flips = [*(flip for _, flip, _ in NAMED.values()), Flip("weights", 5)]
    commands = [run.command(corpus, tmp_path) for run in (*runs, AT_A_SAVE)]
    *ends, at_a_save = processes.run(3, run_flipped, list(zip(commands, flips, strict=True)), scratch=tmp_path)
    named = f"error: rank 1 on host {socket.gethostname()} holds wrong weights after step "
    for run, end in zip(runs, ends, strict=True):
        (line,) = end.stderr.splitlines()
        assert (end.status, line.startswith(f"{named}2, in ")) == (EXIT_LOST, True), run.name
        assert not tags(tmp_path / run.name / "checkpoints")
        assert not (tmp_path / run.name / "metrics.jsonl").read_text()
    assert at_a_save.status == EXIT_LOST
    assert at_a_save.stderr.startswith(f"{named}6, in ")
    checkpoints = tmp_path / AT_A_SAVE.name / "checkpoints"
    assert [tag.name for tag in tags(checkpoints)] == ["step-00000004"], "without checks in between"
    assert find_latest(checkpoints, content=True) is not None
    (*_, last) = map(json.loads, (checkpoints.parent / "metrics.jsonl").read_text().splitlines())
    assert "weights_checksum" not in last
