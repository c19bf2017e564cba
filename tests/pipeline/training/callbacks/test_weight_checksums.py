"""Which rank is named, by the checksums of all ranks."""

from dataclasses import replace

import pytest

from pipeline.engine.checksums import RankChecksums
from pipeline.training.callbacks.weight_checksums import describe, wrong_tensors

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


@pytest.mark.parametrize(
    ("wrong", "start"),
    [
        ({1: ["a"]}, "rank 1 on host n1 holds wrong weights after step 20, in a: "),
        (
            {1: ["a", "b", "c", "d", "e"]},
            "rank 1 on host n1 holds wrong weights after step 20, in a, b, c and 2 more: ",
        ),
        (
            {0: ["a"], 1: ["a"]},
            "rank 0 on host n0 or rank 1 on host n1, or several, hold wrong weights after step 20, in a: ",
        ),
    ],
)
def test_the_line_names_ranks_hosts_and_tensors(wrong: dict[int, list[str]], start: str) -> None:
    line = describe(wrong, ["n0", "n1"], 20)
    assert line.startswith(start)
    assert "Nothing of step 20 is saved" in line
