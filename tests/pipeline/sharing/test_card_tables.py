"""The tables of the card, row by row, from made-up records."""

import json

from pipeline.sharing import card_tables
from pipeline.tasks.registry import TASKS
from tests.pipeline.analysis import made_runs
from tests.pipeline.records import finetune_record, pretrain_record
from tests.pipeline.sharing import runs


def test_the_recipe_of_a_pre_training_run():
    rows = card_tables.recipe(pretrain_record(), {})
    assert rows["schedule"] == "linear warm-up over 2.5 % of the steps, then linear decay to 0"
    assert rows["initial weights"] is None
    more = {"scheduler": {"type": "WarmupLR"}, "masking": {"max_ngram": 3, "mask_probability": 0.15}}
    rows = card_tables.recipe(pretrain_record(**runs.RECORDED | more), {})
    assert (rows["schedule"], rows["max_ngram"], rows["mask_probability"]) == ("WarmupLR", 3, 0.15)


def test_the_recipe_of_a_fine_tuning_run():
    given = {
        "learning_rate": 1e-5, "train_batch_size": 16, "dropout": 0.0, "warmup_steps": 320, "max_length": 512,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-5, "betas": [0.9, 0.999]}}, "scheduler": None,
    }  # fmt: skip
    record = finetune_record(task="my_task", hyperparameters=given, init="/home/me/minilm")
    rows = card_tables.recipe(record, {"train": 1000, "dev": 20})
    assert {name: value for name, value in rows.items() if value is not None} == {
        "task": "my_task", "initial weights": "of the trained model minilm", "examples": "train 1,000, dev 20",
        "optimizer": "AdamW", "peak learning rate": 1e-5, "betas": [0.9, 0.999],
        "schedule": "linear warm-up over 320 steps, then linear decay to 0", "train_batch_size": 16, "dropout": 0.0,
        "max_length": 512, "precision": "fp32", "seed": 0,
    }  # fmt: skip
    assert card_tables.recipe(finetune_record(random_weights=True), {})["initial weights"] is None


def test_metrics_of_the_best_step_have_intervals_and_those_of_other_steps_have_not(tmp_path):
    run = made_runs.finetuning(tmp_path / "run", "squad1", "gone", {"dev": {"f1": 75.0}}, best_step=5)
    made_runs.answers(run, "dev", 15, 5)
    lines = [{"step": step, "split": "eval", "f1": 70.0 + step, "exact": 60.0, "seconds": 1.0} for step in (4, 5)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    rows = card_tables.evaluation(run, 5, TASKS["squad1"])
    assert [row[:2] for row in rows] == [("dev", "f1"), ("dev", "exact")]
    assert all(row[2].startswith("75.0 % (95 % interval 5") and row[2].endswith("of 20 questions") for row in rows)
    assert card_tables.evaluation(run, 4, TASKS["squad1"]) == [
        ("dev", "f1", "74.0 %"), ("dev", "exact", "60.0 %"),
    ]  # fmt: skip
    assert card_tables.evaluation(run, 3, TASKS["squad1"]) == []


def test_a_correlation_is_not_in_percent(tmp_path):
    run = made_runs.finetuning(tmp_path / "run", "cola", "gone", {"dev": {"matthews": 0.5}}, best_step=1)
    made_runs.logits(run, "dev", 15, 5)
    (matthews, accuracy) = card_tables.evaluation(run, 1, TASKS["cola"])
    assert matthews[2].startswith("0.")
    assert "%" not in matthews[2].replace("95 % interval", "")
    assert accuracy[2].startswith("75.0 %")
