"""Which trackers are on, and what they need."""

import importlib.util

import pytest

from common.errors import UserError
from pipeline.tracking import choice


def test_flags_and_blocks_turn_trackers_on():
    json = {"wandb": {"enabled": True, "project": "p"}, "comet": {"enabled": False}, "csv_monitor": {}}
    assert choice.wanted(["mlflow"], json) == {"mlflow": {}, "wandb": {"enabled": True, "project": "p"}}
    assert list(choice.wanted(["csv", "csv"], json)) == ["csv", "wandb"]
    assert choice.wanted([], {}) == {}


def test_a_tensorboard_block_is_a_further_place():
    block = {"enabled": True, "output_path": "logs"}
    assert choice.wanted([], {"tensorboard": block}) == {"tensorboard": block}
    assert choice.wanted([], {"tensorboard": {"enabled": True}}) == {}


@pytest.fixture
def nothing_installed(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.delenv("RANK", raising=False)


@pytest.mark.parametrize(
    ("track", "json", "message"),
    [
        (["mlflow"], {}, "--track mlflow needs the package mlflow: `pip install mlflow`, or leave it out"),
        (["comet"], {}, "--track comet needs the package comet_ml"),
        ([], {"wandb": {"enabled": True}}, "the block wandb of the DeepSpeed JSON needs the package wandb"),
    ],
)
def test_a_missing_package_is_one_line(nothing_installed, track, json, message):
    with pytest.raises(UserError, match=message):
        choice.check(track, json)


def test_other_ranks_need_no_package(nothing_installed, monkeypatch):
    choice.check(["csv"], {})
    monkeypatch.setenv("RANK", "3")
    choice.check(["mlflow"], {})
