"""Parameter counts equal those worked out by hand, those of built models, and those of the paper's tables."""

import runpy
import sys

import pytest

from model import AlbertConfig, AlbertForPreTraining
from model.counts import PAPER_COUNTS, parameter_counts
from tests.model.examples import tiny_config

# albert-xxlarge: the paper prints 235M, its released checkpoint has 223M, and so have we.
RELEASED = {"albert-xxlarge": 223}


def test_albert_base_by_hand() -> None:
    counts = parameter_counts(AlbertConfig.preset("albert-base"))
    layer_norm = 2 * 768
    assert counts.embeddings == (30000 + 512 + 2) * 128 + 2 * 128 + 128 * 768 + 768
    assert counts.encoder == (4 * (768 * 768 + 768) + layer_norm) + (768 * 3072 + 3072 + 3072 * 768 + 768 + layer_norm)
    assert counts.pooler == 768 * 768 + 768
    assert counts.heads == (768 * 128 + 128 + 2 * 128 + 30000) + (2 * 768 + 2)


@pytest.mark.parametrize(("label", "config", "millions"), PAPER_COUNTS)
def test_counts_are_those_of_the_paper(label: str, config: AlbertConfig, millions: int) -> None:
    # The paper rounds up or down to a million, and counts the pooler in some rows only.
    assert abs(parameter_counts(config).backbone / 1e6 - RELEASED.get(label, millions)) < 1.4


@pytest.mark.parametrize("sharing", ["all", "attention", "ffn", "none"])
@pytest.mark.parametrize("sentence_head", ["sop", None])
def test_counts_are_those_of_the_built_model(sharing: str, sentence_head: str | None) -> None:
    config = tiny_config(parameter_sharing=sharing, sentence_head=sentence_head, inner_group_num=2)
    model = AlbertForPreTraining(config)
    assert parameter_counts(config).total == sum(parameter.numel() for parameter in model.parameters())


def test_the_command_prints_every_system_beside_the_paper(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", ["model"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("model", run_name="__main__")
    assert ended.value.code == 0
    lines = {line[:38].rstrip(): line[38:].split() for line in capsys.readouterr().out.splitlines()}
    for label, config, millions in PAPER_COUNTS:
        counts = parameter_counts(config)
        parts = (counts.backbone, counts.embeddings, counts.encoder, counts.pooler, counts.heads)
        assert lines[label] == [f"{millions}M", *(f"{part / 1e6:.1f}" for part in parts)]


def test_the_command_takes_no_arguments(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", ["model", "albert-base"])
    with pytest.raises(SystemExit) as stopped:
        runpy.run_module("model", run_name="__main__")
    assert stopped.value.code == 2
    assert capsys.readouterr().err == "error: unknown argument albert-base; see `python -m model --help`\n"


def test_the_help_ends_with_status_0(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", ["model", "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("model", run_name="__main__")
    assert ended.value.code == 0
    assert "parameter counts" in capsys.readouterr().out
