"""The table of a pre-training run."""

import json

from pipeline.analysis.compared_runs import summarise
from tests.pipeline.test_report import PRETRAIN
from tests.pipeline.tracking.made_records import log_run


def test_the_table_says_what_the_records_say(tmp_path):
    log_run(tmp_path / "base", 0, 60, {**PRETRAIN, "world_size": 1})
    shown = dict(
        line.split("  ", 1)
        for line in summarise(tmp_path / "base", tmp_path / "export").splitlines()
        if "  " in line.strip()
    )
    assert shown["steps"].strip() == "60 of 100, 1,200 tokens"
    assert shown["held-out MLM loss"].strip() == "6.500 nats, 8.3 % above the unigram entropy 6.000"
    assert shown["held-out SOP accuracy"].strip() == "60.0 % (95 % interval 50.0 to 70.0) of 40 pairs"
    assert shown["training speed"].strip() == "50 tokens/s in fp16"
    assert shown["time"].strip() == "60 s on 1 rank"
    assert "divergence" not in shown


def test_rollbacks_are_counted(tmp_path):
    log_run(tmp_path / "base", 0, 60, PRETRAIN)
    signs = {"first_step": 30, "last_step": 32, "loss": None, "usual_loss": 6.5}
    spike = signs | {"grad_norm": 9.0, "usual_grad_norm": 1.0}
    (tmp_path / "base" / "rollbacks.json").write_text(json.dumps({"rollbacks": [{"passed_over": [21, 32], **spike}]}))
    assert "divergence              1 rollback, 11 batches skipped\n" in summarise(
        tmp_path / "base", tmp_path / "export"
    )
