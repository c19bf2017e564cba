"""The paper's tables: the printed values agree with each other, and runs are assigned to their row, scale and cell."""

import json
import os
import statistics
from dataclasses import asdict, replace

import pytest

from model import AlbertConfig
from model.counts import parameter_counts
from pipeline import evaluate
from pipeline.analysis import finished_runs, paper_tables, printed_tables
from pipeline.analysis.paper_tables import Evidence
from pipeline.analysis.printed_tables import TABLES, PreTraining
from pipeline.checkpoint.run_records import LengthRecord, read_record
from pipeline.data.masking import MaskingSettings
from pipeline.tasks.registry import TASKS
from tests.pipeline.analysis import made_runs
from tests.pipeline.records import finetune_record, write

ROWS = [pytest.param(row, id=f"{table.name} {row.name}") for table in TABLES.values() for row in table.rows]
PRETRAININGS = {row for table in TABLES.values() for row in table.pretrainings}


@pytest.mark.parametrize("row", ROWS)
def test_the_papers_averages_and_parameters_are_those_of_the_row(row):
    if "avg" in row.cells:
        average = paper_tables.mean_of([row.cells[column.name] for column in TABLES["7"].columns[:-1]])
        assert average == pytest.approx(row.cells["avg"], abs=0.06)  # average and cells are rounded to one digit
    if "parameters" in row.cells:
        count = parameter_counts(row.pretraining.config).backbone / 1e6
        assert count == pytest.approx(row.cells["parameters"][0], rel=0.06)


def test_rows_have_one_directory_exactly_if_they_are_one_experiment():
    experiments = {
        (json.dumps(row.config.to_dict()), row.objective, row.steps, row.additional_data): row for row in PRETRAININGS
    }
    assert len({row.slug for row in PRETRAININGS}) == len(experiments) == 24
    assert PreTraining("albert-base", embedding_size=128, parameter_sharing="all").slug == "albert-base"
    assert PreTraining("albert-base", embedding_size=64, parameter_sharing="none").slug == "albert-base_E-64_share-none"
    assert PreTraining("bert-large", objective="nsp", steps=400_000).slug == "bert-large_400k"
    assert PreTraining("albert-base", objective="mlm", dropout=0.2, additional_data=True).slug == (
        "albert-base_dropout-0.2_mlm_more-data"
    )


def test_a_run_matches_only_its_own_row(tmp_path):
    row = PreTraining("albert-base", embedding_size=64, parameter_sharing="all")
    record = read_record(made_runs.pretraining(tmp_path / "run", row))
    lengths = [LengthRecord(0, 50), LengthRecord(50, 100)]
    masking = asdict(MaskingSettings())
    for same in ({}, {"init": None, "lengths": lengths[:1]}, {"steps": 124_000}):
        assert [one for one in PRETRAININGS if one.matches(replace(record, **same), None)] == [row], same
    for other in (
        {"steps": 120_000},
        {"init": "runs/other"},
        {"lengths": lengths},
        {"objective": "mlm"},
        {"masking": masking | {"mask_probability": 0.3}},
        {"masking": masking | {"max_ngram": 1}},
    ):
        assert not row.matches(replace(record, **other), None), other
    more = PreTraining("albert-base", embedding_size=64, additional_data=True)
    for data in ("large", [("small", 0.5), ("large", 0.5)]):
        assert row.matches(replace(record, data=data), None)
        assert not row.matches(replace(record, data=data), "large")
        assert more.matches(replace(record, data=data), "large")
    assert not more.matches(record, "large")
    assert row.matches(replace(record, steps=1250), None, scale=0.01)
    assert not row.matches(record, None, scale=0.01)


METRICS = {
    "squad1": {"dev": {"f1": 60.0, "exact": 50.0}},
    "squad2": {"dev": {"f1": 40.0, "exact": 40.0, "best_f1": 52.0, "best_exact": 48.0}},
    "mnli": {"dev_matched": {"accuracy": 0.45}, "dev_mismatched": {"accuracy": 0.1}},
    "sst2": {"dev": {"accuracy": 0.8}},
    "race": {"dev": {"accuracy": 0.25, "middle": 0.3}},
}


def evidence_of(root, additional_data=None):
    runs = finished_runs.find_runs([root])
    return Evidence(runs, finished_runs.find_pretrained([root], runs), additional_data)


def test_a_table_has_the_metrics_of_its_runs(tmp_path):
    base = made_runs.pretraining(tmp_path / "base", PreTraining("albert-base"))
    for task, metrics in METRICS.items():
        made_runs.finetuning(tmp_path / "base" / task, task, base / "export", metrics)
    large = made_runs.pretraining(tmp_path / "bert", PreTraining("bert-large", objective="nsp"))
    made_runs.finetuning(tmp_path / "bert" / "sst2", "sst2", large, METRICS["sst2"])
    rows = {row.row.name: row for row in paper_tables.measure(TABLES["2"], evidence_of(tmp_path))}
    measured = rows["ALBERT base"].cells
    assert measured["squad1"] == (60.0, 50.0)
    assert measured["squad2"] == (52.0, 48.0)
    assert measured["mnli"] == (45.0,)
    assert measured["avg"] == pytest.approx((statistics.fmean([55.0, 50.0, 45.0, 80.0, 25.0]),))
    assert measured["speed"] == pytest.approx((768 / 1024,))
    config = PreTraining("albert-base").config.to_dict() | {"vocab_size": 50, "max_position_embeddings": 16}
    assert measured["parameters"][0] == parameter_counts(AlbertConfig.from_dict(config)).backbone / 1e6
    assert set(rows["BERT large"].cells) == {"parameters", "sst2", "speed"}
    assert rows["ALBERT xlarge"].cells == {}
    text = paper_tables.markdown(TABLES["2"], list(rows.values()))
    write(large, replace(read_record(large), world_size=4))
    rows = {row.row.name: row for row in paper_tables.measure(TABLES["2"], evidence_of(tmp_path))}
    assert "speed" not in rows["ALBERT base"].cells  # on other ranks than BERT large
    line = next(line for line in text.splitlines() if "60.0/50.0" in line)
    assert line.split(" | ")[3:9] == ["60.0/50.0", "52.0/48.0", "45.0", "80.0", "25.0", "51.0"]
    assert "90.4/83.2" in text
    assert text.count("not run") == 5 + 4 * 8  # BERT large lacks four tasks and Avg; four rows lack everything


def test_the_run_with_the_most_seeds_counts_and_ensembles_have_their_own_row(tmp_path):
    init = made_runs.pretraining(
        tmp_path / "xxl", PreTraining("albert-xxlarge", steps=1_000_000, additional_data=True), data="large"
    )
    many = made_runs.finetuning(
        tmp_path / "many", "rte", init, {}, seeds=[0, 1], median={"dev": {"accuracy": 0.5}}, spread={}
    )
    made_runs.finetuning(many / "seed-0", "rte", init, {"dev": {"accuracy": 0.4}})
    once = made_runs.finetuning(tmp_path / "once", "rte", init, {"dev": {"accuracy": 0.9}})
    mnli = made_runs.finetuning(tmp_path / "mnli", "mnli", init, METRICS["mnli"])
    # A run of its own, though its directory is inside that of the run that it starts from.
    through = made_runs.finetuning(mnli / "mrpc", "mrpc", mnli, {"dev": {"accuracy": 0.75, "f1": 0.8}})
    assert [run.directory for run in finished_runs.find_runs([tmp_path])] == [many, mnli, through, once]
    assert [run.directory for run in finished_runs.find_runs([many / "seed-0"])] == [many / "seed-0"]  # named itself
    made_runs.finetuning(tmp_path / "mean", "rte", None, {"dev": {"accuracy": 0.7}}, ensemble=[str(many), str(once)])
    found = {row.row.name: row for row in paper_tables.measure(TABLES["9"], evidence_of(tmp_path, "large"))}
    single = found["ALBERT (1M), single"]
    assert single.cells == {"rte": (50.0,), "mnli": (45.0,), "mrpc": (75.0,)}
    assert single.runs["mrpc"] == str(through)  # its weights come from the MNLI run and through it from the same model
    assert found["ALBERT, ensemble"].cells == {"rte": (70.0,)}
    assert found["ALBERT (1.5M), single"].cells == {}
    os.utime(made_runs.finetuning(tmp_path / "older", "mnli", init, {}) / "results.json", (1, 1))
    found = {row.row.name: row for row in paper_tables.measure(TABLES["9"], evidence_of(tmp_path, "large"))}
    assert found["ALBERT (1M), single"].runs["mnli"] == str(mnli)  # of two runs of one seed the newest
    # An ensemble whose members are gone belongs to no row.
    made_runs.finetuning(tmp_path / "lost", "cola", None, {"dev": {"matthews": 0.7}}, ensemble=[str(tmp_path / "gone")])
    found = {row.row.name: row for row in paper_tables.measure(TABLES["9"], evidence_of(tmp_path, "large"))}
    assert found["ALBERT, ensemble"].cells == {"rte": (70.0,)}


def test_the_leaderboards_average():
    runs = {}
    for number, (task, wanted) in enumerate(printed_tables.GLUE_SCORE.items()):
        metrics: dict = {}
        for place, (split, metric) in enumerate(wanted):
            metrics.setdefault(split, {})[metric] = 0.1 * number + 0.02 * place
        runs[task] = finished_runs.TaskRun(None, TASKS[task], metrics, 1, (), (), {})
    # Tasks 0 to 8 have 0, 0.1, ..., 0.8; four of them 0.01 more.
    assert paper_tables.glue_score(runs) == pytest.approx((100 * (3.6 + 4 * 0.01) / 9,))
    del runs["wnli"]
    assert paper_tables.glue_score(runs) is None


def test_the_command_writes_tables(tmp_path, capsys):
    root, out = tmp_path / "runs", tmp_path / "out"
    base = made_runs.pretraining(root / "base", PreTraining("albert-base"), sop_accuracy=0.6)
    records = (base / "metrics.jsonl").read_text()
    nothing = '{"step": 0, "split": "eval", "mlm_accuracy": null}\n'
    (base / "metrics.jsonl").write_text(nothing + records + '{"step": 3, "split": "ev')  # killed there
    for task, metrics in METRICS.items():
        made_runs.finetuning(root / "base-tasks" / task, task, base, metrics)
    made_runs.finetuning(root / "lost", "sst2", tmp_path / "gone", METRICS["sst2"])
    made_runs.finetuning(root / "random", "sst2", None, METRICS["sst2"], random_weights=True)
    assert evaluate.main(["tables", "--runs", str(root), "--out", str(out)]) == 0
    text = (out / "tables.md").read_text()
    assert all(f"## Table {name}:" in text for name in TABLES)
    values = json.loads((out / "tables.json").read_text())
    assert [value["table"] for value in values] == list(TABLES)
    fifth = next(value for value in values if value["table"] == "5")
    sop = next(row for row in fifth["rows"] if row["name"] == "SOP")
    assert sop["measured"]["mlm_accuracy"] == [25.0]
    assert sop["measured"]["sop_accuracy"] == [60.0]
    assert sop["measured"]["nsp_accuracy"] is None
    assert sop["paper"]["sop_accuracy"] == [86.5]
    assert f"was not found: {root / 'lost'}\n" in capsys.readouterr().out
    # Without runs, every cell says so.
    (tmp_path / "empty").mkdir()
    assert evaluate.main(["tables", "--runs", str(tmp_path / "empty"), "--out", str(out / "e"), "--tables", "6"]) == 0
    assert "| not run | not run |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "arguments", "message"),
    [
        ("tables", ["--runs", "{tmp}/absent", "--out", "{tmp}/out"], "absent is no directory"),
        ("tables", ["--runs", "{tmp}", "--out", "{tmp}/out", "--tables", "1"], "table '1' is not known"),
        ("tables", ["--runs", "{tmp}/bad", "--out", "{tmp}/out"], "results.json"),
        ("tables", ["--runs", "{tmp}/plain", "--out", "{tmp}/out", "--additional-data", "{tmp}"], "no manifest.json"),
        ("compare", ["--runs", "{tmp}/plain"], "holds no logits"),
        ("compare", ["--runs", "{tmp}/plain", "--random", "{tmp}/absent"], "error: {tmp}/absent is no directory; name"),
        ("summary", ["--run", "{tmp}/plain"], "is a fine-tuning run; its metrics are in"),
        ("ensemble", ["--runs", "{tmp}/plain", "--out", "{tmp}/out"], "holds no logits"),
    ],
)
def test_mistakes_are_one_line(tmp_path, capsys, command, arguments, message):
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "results.json").write_text("{")
    plain = made_runs.finetuning(tmp_path / "plain", "rte", "nowhere", {})
    write(plain, finetune_record())
    assert evaluate.main([command, *(argument.format(tmp=tmp_path) for argument in arguments)]) == 2
    error = capsys.readouterr().err
    assert message.format(tmp=tmp_path) in error
    assert error.count("\n") == 1
