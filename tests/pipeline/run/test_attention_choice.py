"""The attention kernel of a run: rank 0 chooses, all ranks use it, later starts keep it. And --deterministic."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.shared.outcome import differences
from model import AlbertConfig
from model.attention.kernels import AttentionCase
from pipeline.distributed.exits import EXIT_STOPPED
from pipeline.engine import hardware
from pipeline.run import attention_choice
from pipeline.run.attention_trial import Trial
from tests.pipeline.workers import processes
from tests.pipeline.workers.chosen_kernels import Start, train, train_deterministically

CONFIG = {
    "train_batch_size": 8,
    "train_micro_batch_size_per_gpu": 2,
    "optimizer": {"type": "Lamb", "params": {"lr": 0.01}},
}
SEQUENCES_WINS, MASKED_WINS = {"masked": 2.0, "sequences": 1.0}, {"masked": 1.0, "sequences": 2.0}


def command(corpus: Any, folder: Path, stage: int) -> list[str]:
    config = folder / "config.json"
    config.write_text(json.dumps(CONFIG | {"zero_optimization": {"stage": stage, "reduce_bucket_size": 5000}}))
    return [
        "--model", "albert-tiny", "--data", str(corpus.train), "--deepspeed_config", str(config), "--precision", "fp32",
        "--steps", "6", "--log-interval", "2", "--save-interval", "2", "--model-args", "num_hidden_layers=2",
        "hidden_size=32", "num_attention_heads=4", "intermediate_size=64", "attention_probs_dropout_prob=0.1",
    ]  # fmt: skip


@pytest.mark.slow
def test_rank_0_chooses_for_all_and_later_starts_keep_it(corpus: Any, tmp_path: Path) -> None:
    starts = [
        Start((SEQUENCES_WINS, MASKED_WINS), stop=2),
        Start((MASKED_WINS, MASKED_WINS), stop=4),  # every clock would choose another one now
        Start(({"masked": 1.0}, {"masked": 1.0}), stop=None),  # where the kernel cannot be used
    ]
    words = [*command(corpus, tmp_path, stage=1), "--output", str(tmp_path / "run")]
    first, second, third = processes.run(2, train, words, starts, tmp_path / "run", scratch=tmp_path)
    assert [one.status for one in (first, second, third)] == [EXIT_STOPPED, EXIT_STOPPED, 0], third
    assert (first.used, first.recorded) == ([{"sequences"}] * 2, "sequences")
    assert first.tried == [["masked", "sequences"], []]
    assert "attention kernel: sequences (sequences 1e+03 ms; masked 2e+03 ms)" in first.stdout
    assert (second.used, second.recorded, second.tried) == ([{"sequences"}] * 2, "sequences", [[], []])
    assert f"attention kernel: sequences, as recorded in {tmp_path / 'run'}" in second.stdout
    assert (third.used, third.recorded) == ([{"masked"}] * 2, "masked")
    assert "sequences, recorded in" in third.stdout
    assert "cannot be used on CPU" in third.stdout
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    layouts = [record["layout"] for record in map(json.loads, lines) if record["split"] == "train"]
    assert [layout.rpartition(" ")[2] for layout in layouts] == ["sequences", "sequences", "masked"]


@pytest.mark.slow
def test_deterministic_training_gives_the_same_bits_again(corpus: Any, tmp_path: Path) -> None:
    words = command(corpus, tmp_path, stage=3)
    ended, switches = processes.run(2, train_deterministically, words, tmp_path, 4, scratch=tmp_path)
    assert [end.status for end in ended] == [0, EXIT_STOPPED, 0], ended
    assert all("deterministic algorithms" in end.stdout for end in ended)
    assert differences(tmp_path / "twice", tmp_path / "straight") == []
    assert json.loads((tmp_path / "twice" / "settings.json").read_text())["deterministic"] is True
    assert switches == {
        "algorithms": True,
        "only a warning": False,
        "cudnn": (True, False),
        "environment": hardware.DETERMINISTIC_ENVIRONMENT,
    }


CASE = AttentionCase(torch.device("cpu"), torch.bfloat16, 8, heads=4, head_dim=8, dropout=0.0)
IDS = np.zeros((2, 8), dtype=np.int64)


@pytest.mark.parametrize(
    ("trials", "kernel", "line"),
    [
        (
            {"masked": Trial(3e-3), "cudnn": Trial(None, "no kernel"), "flash": Trial(1e-3)},
            "flash",
            "attention kernel: flash (flash 1 ms; masked 3 ms; cudnn: no kernel)",
        ),
        (
            dict.fromkeys(("masked", "cudnn", "flash"), Trial(None, "no GPU")),
            "auto",
            "attention kernel: masked, because no trial succeeded (masked: no GPU; ",
        ),
    ],
)
def test_the_fastest_of_those_that_work_is_taken(
    trials: dict[str, Trial], kernel: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention_choice, "try_kernel", lambda _, name, __: trials[name])
    found, told = attention_choice.fastest(CASE, IDS)
    assert found == kernel
    assert line in told


class OneRank:
    """The control group of a run with one rank."""

    rank = 0

    def broadcast(self, value: Any, kinds: Any = ()) -> Any:
        return value


def settle(folder: Path, monkeypatch: pytest.MonkeyPatch, trials: dict[str, Trial], **fields: Any) -> Any:
    """Settles on a GPU of the kind "H200" and returns the kernel."""
    monkeypatch.setattr(attention_choice, "is_measured", lambda settings: settings.engine.device != "CPU")
    monkeypatch.setattr(attention_choice, "try_kernel", lambda _, name, __: trials[name])
    monkeypatch.setattr(
        attention_choice.dataclasses, "replace", lambda one, **changed: SimpleNamespace(**vars(one) | changed)
    )
    batch = SimpleNamespace(sequence_ids=IDS, cls_positions=IDS[:, :2])
    settings = SimpleNamespace(
        output=folder / "run",
        execution=SimpleNamespace(attention="auto"),
        engine=SimpleNamespace(device="H200", precision="bf16"),
        model=AlbertConfig.preset("albert-base", attention_probs_dropout_prob=0.0),
        deterministic=False,
    )
    for name, value in fields.items():
        setattr(settings, name, value)
    return attention_choice.choose_for_run(settings, lambda: batch, OneRank()).execution.attention  # type: ignore[type-var, arg-type]


def record(run: Path, kernel: str, device: str) -> None:
    run.mkdir()
    model = AlbertConfig.preset("albert-base").to_dict()
    told = {"task": "rte", "model": model, "implementation": {"attention": kernel}, "device": device}
    (run / "settings.json").write_text(json.dumps(told))


def test_a_recorded_kernel_is_tried_on_another_kind_of_gpu_only(tmp_path, monkeypatch, capsys) -> None:
    record(tmp_path / "run", "cudnn", "H100")
    fine = {"masked": Trial(2.0), "cudnn": Trial(3.0), "flash": Trial(1.0)}
    assert settle(tmp_path, monkeypatch, fine) == "cudnn"
    assert "as recorded" in capsys.readouterr().out
    assert settle(tmp_path, monkeypatch, fine | {"cudnn": Trial(None, "no cuDNN")}) == "flash"
    assert "note: the attention kernel cudnn" in (told := capsys.readouterr().out)
    assert "cannot be used on H200 (no cuDNN)" in told
    same = SimpleNamespace(device="H100", precision="bf16")
    assert settle(tmp_path, monkeypatch, {}, engine=same) == "cudnn"  # nothing is tried
    fp32 = SimpleNamespace(device="H100", precision="fp32")
    assert settle(tmp_path, monkeypatch, fine, engine=fp32) == "masked"
    capsys.readouterr()
    cpu = SimpleNamespace(device="CPU", precision="fp32")
    assert settle(tmp_path, monkeypatch, {}, engine=cpu) == "auto"
    assert "cannot be used on CPU (it needs a GPU)" in capsys.readouterr().out


def test_a_kernel_that_was_named_is_not_measured(tmp_path, monkeypatch, capsys) -> None:
    record(tmp_path / "run", "cudnn", "H200")
    assert settle(tmp_path, monkeypatch, {}, execution=SimpleNamespace(attention="flash")) == "flash"
    assert capsys.readouterr().out == ""


def test_a_rank_executes_the_model_as_rank_0_does(tmp_path, monkeypatch) -> None:
    """Only rank 0's host may have the page that turns graphs on."""
    other = SimpleNamespace(rank=1, broadcast=lambda *_: SimpleNamespace(attention="flash"))
    monkeypatch.setitem(globals(), "OneRank", lambda: other)
    assert settle(tmp_path, monkeypatch, {}, execution=SimpleNamespace(attention="masked")) == "flash"


def test_seeds_take_the_kernel_of_a_seed_before(tmp_path) -> None:
    record(tmp_path / "seed-0", "auto", "CPU")
    record(tmp_path / "seed-1", "flash", "H200")
    assert attention_choice.recorded(
        [tmp_path / "seed-2", tmp_path / "seed-0", tmp_path / "seed-1"]
    ) == attention_choice.Recorded("flash", tmp_path / "seed-1", "H200")
    assert attention_choice.recorded([tmp_path / "seed-0"]) is None
