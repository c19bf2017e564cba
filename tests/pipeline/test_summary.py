"""The table of a pre-training run."""

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
