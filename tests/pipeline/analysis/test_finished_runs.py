"""Runs are traced to their pre-training through a limited number of fine-tunings."""

import pytest

from common.errors import UserError
from pipeline.analysis.finished_runs import MAX_ORIGINS, find_runs
from pipeline.analysis.printed_tables import PreTraining
from tests.pipeline.analysis import made_runs


def chain(root, count):
    """`count` fine-tunings, each from the one before and the first from a pre-training run. Returns the last."""
    init = made_runs.pretraining(root / "base", PreTraining("albert-base"))
    for number in range(count):
        init = made_runs.finetuning(root / f"run-{number:02}", "rte", init, {})
    return init


def test_the_longest_chain_is_followed_to_its_beginning(tmp_path):
    last = chain(tmp_path, MAX_ORIGINS + 1)
    (found,) = (run for run in find_runs([tmp_path]) if run.directory == last)
    assert [origin.directory for origin in found.origins] == [tmp_path / "base"]


def test_a_longer_chain_and_a_circle_are_one_line(tmp_path):
    chain(tmp_path / "longer", MAX_ORIGINS + 2)
    made_runs.finetuning(tmp_path / "circle" / "one", "rte", tmp_path / "circle" / "two", {})
    made_runs.finetuning(tmp_path / "circle" / "two", "rte", tmp_path / "circle" / "one", {})
    for place in ("longer", "circle"):
        with pytest.raises(UserError, match=r"the runs from .* on start from each other; restore their results\.json"):
            find_runs([tmp_path / place])
