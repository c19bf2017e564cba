"""Table 14 of the paper, the command line and a DeepSpeed JSON as settings."""

import dataclasses
import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from common.errors import UserError
from model import AlbertConfig
from pipeline.checkpoint.initial_weights import InitialModel
from pipeline.engine.hardware import Hardware
from pipeline.finetuning import finetune_settings
from pipeline.finetuning.fine_tuning import FineTuning
from pipeline.settings import declare, finetune_flags
from pipeline.tasks.own_tasks import Head
from pipeline.tasks.registry import PAPER_TASKS, find_task
from pipeline.training import schedule

# task, learning rate, batch, dropout, steps, warm-up, length
TABLE_14 = [
    ("cola", 1e-5, 16, 0.0, 5336, 320, 512),
    ("stsb", 2e-5, 16, 0.0, 3598, 214, 512),
    ("sst2", 1e-5, 32, 0.0, 20935, 1256, 512),
    ("mnli", 3e-5, 128, 0.0, 10000, 1000, 512),
    ("qnli", 1e-5, 32, 0.0, 33112, 1986, 512),
    ("qqp", 5e-5, 128, 0.1, 14000, 1000, 512),
    ("rte", 3e-5, 32, 0.1, 800, 200, 512),
    ("mrpc", 2e-5, 32, 0.0, 800, 200, 512),
    ("wnli", 2e-5, 16, 0.1, 2000, 250, 512),
    ("squad1", 5e-5, 48, 0.0, 3649, 365, 384),
    ("squad2", 3e-5, 48, 0.0, 8144, 814, 512),
    ("race", 2e-5, 32, 0.1, 12000, 1000, 512),
]
CPU = Hardware("CPU", fp16=False, bf16=True)
GPU = Hardware("NVIDIA H100", fp16=True, bf16=True)
MODEL = AlbertConfig.preset("albert-base")  # 512 positions, dropout 0.1


def resolved_runs(task="rte", *flags, hardware=CPU, model=MODEL):
    words = ["--task", task, "--init", "init", "--data", "data", "--output", "output", *flags]
    flags = finetune_flags.parse(words)
    return finetune_settings.resolve(flags, find_task(task), 1000, 1, hardware, initial_model(model), "data")


def initial_model(config):
    return InitialModel(Path("init"), "digest", config, vocabulary=None, weights=None, pretraining=None)


def resolved(*arguments, **options):
    (found,) = resolved_runs(*arguments, **options)
    return found


@pytest.mark.parametrize(
    ("width", "rate", "reason"),
    [
        (1024, 1e-5, ""),
        (256, 9e-5, " (1e-05 of Table 14 suits a width from 768 on; this model has 256)"),
        (128, 2e-4, " (1e-05 of Table 14 suits a width from 768 on; this model has 128)"),
    ],
)
def test_a_small_model_has_a_higher_rate(width, rate, reason):
    model = AlbertConfig.preset("albert-tiny", hidden_size=width, num_attention_heads=1)
    chosen_run = resolved("sst2", model=model)
    assert (chosen_run.engine.learning_rate, chosen_run.rate_note) == (rate, reason)
    chosen = resolved("sst2", "--learning-rate", "2e-5", model=model)
    assert (chosen.engine.learning_rate, chosen.rate_note) == (2e-5, "")


@pytest.mark.parametrize("row", TABLE_14, ids=[row[0] for row in TABLE_14])
def test_table_14_is_the_default(row):
    chosen_run = resolved(row[0])
    found = chosen_run.hyperparameters
    names = ("learning_rate", "train_batch_size", "dropout", "steps", "warmup_steps", "max_length")
    assert (row[0], *(found[name] for name in names)) == row
    assert found["classifier_dropout"] == 0.1
    assert {task.name for task in PAPER_TASKS} == {name for name, *_ in TABLE_14}
    # The optimizer of the paper's code.
    params = {"lr": row[1], "betas": [0.9, 0.999], "eps": 1e-6, "weight_decay": 0.01, "bias_correction": False}
    assert found["optimizer"] == {"type": "AdamW", "params": params}
    assert found["gradient_clipping"] == 1.0


def test_every_hyperparameter_has_its_flag():
    flags = {
        "--learning-rate": 0.5, "--batch-size": 6, "--steps": 40, "--warmup-steps": 7, "--max-length": 100,
        "--dropout": 0.25, "--classifier-dropout": 0.75, "--doc-stride": 9, "--max-query-length": 8,
        "--max-answer-length": 5,
    }  # fmt: skip
    words = [str(word) for flag in flags.items() for word in flag]
    found = resolved("squad2", *words, "--weight-decay", "0.125", "--micro-batch-size", "3")
    given = {name.replace("-", "_").strip("_"): value for name, value in flags.items()}
    given["train_batch_size"] = given.pop("batch_size")
    assert given.items() <= found.hyperparameters.items()
    assert found.engine.json["optimizer"]["params"]["weight_decay"] == 0.125
    assert (found.engine.micro_batch_size, found.engine.accumulation_steps) == (3, 2)


def test_what_follows_from_other_steps_and_other_models():
    chosen_run = resolved("rte", "--steps", "100")
    assert chosen_run.warmup_steps == 25  # Table 14's share of the steps
    assert (chosen_run.eval_interval, chosen_run.save_interval) == (50, 50)
    assert schedule.of_run(chosen_run)(24) == pytest.approx(3e-5 * 24 / 25)
    assert schedule.of_run(chosen_run)(50) == pytest.approx(3e-5 / 2)
    short = AlbertConfig.preset("albert-base", max_position_embeddings=64)
    assert resolved("squad1", model=short).max_length == 64
    seeds = resolved_runs("squad1", "--seeds", "2", "--seed", "4")
    places = {run.flags.seed: run.flags.output for run in seeds}
    assert places == {4: Path("output/seed-4"), 5: Path("output/seed-5")}
    for flags, message in (
        (("--max-length", "513"), "more than the 512 positions"),
        (("--steps", "100", "--warmup-steps", "101"), "101 warm-up steps do not fit into 100 steps"),
        (("--dropout", "1"), "1 is not at least 0 and below 1"),
        (("--max-answer-length", "3"), "--max-answer-length is for questions with answers, not rte"),
    ):
        with pytest.raises(UserError, match=message):
            resolved("rte", *flags)


def test_on_gpus_the_default_is_bf16_and_a_json_replaces_it_but_for_the_flags(tmp_path):
    assert resolved(hardware=GPU).engine.precision == "bf16"
    assert resolved(hardware=CPU).engine.precision == "fp32"
    path = tmp_path / "own.json"
    optimizer = {"type": "Adam", "params": {"lr": 0.25, "weight_decay": 0.5}}
    path.write_text(json.dumps({"train_batch_size": 10, "gradient_accumulation_steps": 5, "optimizer": optimizer}))
    chosen_run = resolved("rte", "--deepspeed_config", str(path))
    assert (chosen_run.engine.learning_rate, chosen_run.engine.accumulation_steps) == (0.25, 5)
    chosen_run = resolved("rte", "--deepspeed_config", str(path), "--learning-rate", "0.125", "--batch-size", "12")
    assert chosen_run.engine.json["optimizer"] == {"type": "Adam", "params": {"lr": 0.125, "weight_decay": 0.5}}
    assert (chosen_run.engine.train_batch_size, chosen_run.engine.accumulation_steps) == (12, 1)


def test_the_scheduler_of_a_json_decides_rate_and_warm_up_but_for_the_flags(tmp_path):
    path = tmp_path / "own.json"
    scheduler = {"type": "WarmupLR", "params": {"warmup_max_lr": 0.5, "warmup_num_steps": 7, "warmup_type": "linear"}}
    optimizer = {"type": "Adam", "params": {"lr": 0.25}}
    sizes = {"train_batch_size": 8, "train_micro_batch_size_per_gpu": 4}
    path.write_text(json.dumps({"optimizer": optimizer, "scheduler": scheduler, **sizes}))
    for flags, rate, warmup, division in (
        ("", 0.5, 7, (4, 2)),
        ("--learning-rate 0.125 --warmup-steps 9 --batch-size 12", 0.125, 9, (4, 3)),
        ("--batch-size 3", 0.5, 7, (3, 1)),
    ):
        found = resolved("rte", "--deepspeed_config", str(path), *flags.split())
        assert (found.hyperparameters["learning_rate"], found.warmup_steps) == (rate, warmup)
        assert schedule.of_run(found)(warmup) == rate
        assert (found.engine.micro_batch_size, found.engine.accumulation_steps) == division


def test_the_output_alone_stands_for_the_newest_command(tmp_path):
    words = ["--task", "rte", "--init", "init", "--data", "data", "--output", str(tmp_path)]
    for seed, seeds in ((0, 2), (2, 3), (10, 11)):  # finished seeds keep the words of the command that made them
        (tmp_path / f"seed-{seed}").mkdir()
        given = finetune_flags.parse([*words, "--seeds", str(seeds)])
        config = tmp_path / f"seed-{seed}" / "config.yaml"
        config.write_text(declare.to_yaml(given))
        os.utime(config, (seeds % 11, seeds % 11))
    assert finetune_flags.parse(["--output", str(tmp_path)]).seeds == 3


def test_a_run_is_another_one_if_anything_that_decides_its_numbers_is_another():
    identity = resolved("rte").fixed_values()
    for flags in (
        "--learning-rate 0.1", "--weight-decay 0.1", "--batch-size 8", "--steps 9", "--warmup-steps 9", "--dropout 0.3",
        "--classifier-dropout 0.3", "--max-length 99", "--eval-interval 9", "--random-weights", "--max-hours 2",
        "--deterministic",
    ):  # fmt: skip
        assert resolved("rte", *flags.split()).fixed_values() != identity, flags
    for flags in ("--micro-batch-size 8", "--log-interval 9", "--activation-checkpointing layer"):
        assert resolved("rte", *flags.split()).fixed_values() == identity, flags


@pytest.mark.parametrize(
    ("task", "labels", "keeps"),
    [
        ("rte", ("entailment", "not_entailment"), True),
        ("rte", None, True),
        ("rte", ("not_entailment", "entailment"), False),
        ("mnli", ("entailment", "not_entailment"), False),
        (None, None, False),
    ],
)
def test_a_head_is_kept_for_the_same_task_and_labels_only(task, labels, keeps):
    names = None if labels is None else dict(enumerate(labels))
    for name, head, kept in (("rte", Head(task, names), keeps), ("squad2", Head("squad2"), True)):
        weights = SimpleNamespace(head=head)
        initial = dataclasses.replace(initial_model(MODEL), weights=weights)
        run = FineTuning(resolved(name), None, initial, find_task(name), None, None)
        assert run.has_head("classifier.weight") == kept


def test_the_start_says_how_many_examples_are_cut_and_that_there_is_no_dev_set():
    data = SimpleNamespace()
    run = FineTuning(resolved("rte"), None, initial_model(MODEL), find_task("rte"), data, None)
    for cut in ({"train": 0}, {"train": 1234}, {"train": 0, "dev": 1}):
        data.features = {split: SimpleNamespace(examples=2000, cut=its) for split, its in cut.items()}
        assert run.subject(None)[2:] == [
            f"note: {its:,} examples of {split} have more than {run.settings.max_length} tokens; the rest is not read"
            for split, its in cut.items()
            if its
        ]
        assert any("no dev set" in line for line in run.details()) == ("dev" not in cut)
