"""The paper's tables: the printed values agree with each other, and each cell has the value of its run."""

import statistics
from dataclasses import replace

import pytest

from model import AlbertConfig
from model.counts import parameter_counts
from pipeline.analysis import paper_tables
from pipeline.analysis.comparison import TaskRun
from pipeline.analysis.paper_tables import TABLES, PaperPretraining
from pipeline.checkpoint.run_directory import ResultsRecord
from pipeline.settings.settings_file import read_settings
from pipeline.tasks.registry import TASKS
from tests.pipeline.analysis import made_runs
from tests.pipeline.records import write

ROWS = [pytest.param(row, id=f"{table.name} {row.name}") for table in TABLES.values() for row in table.rows]
PRETRAININGS = {row for table in TABLES.values() for row in table.pretrainings}
METRICS = {
    "squad1": {"dev": {"f1": 60.0, "exact": 50.0}},
    "squad2": {"dev": {"f1": 40.0, "exact": 40.0, "best_f1": 52.0, "best_exact": 48.0}},
    "mnli": {"dev_matched": {"accuracy": 0.45}, "dev_mismatched": {"accuracy": 0.1}},
    "sst2": {"dev": {"accuracy": 0.8}},
    "race": {"dev": {"accuracy": 0.25, "middle": 0.3}},
}


@pytest.mark.parametrize("row", ROWS)
def test_the_papers_averages_and_parameters_are_those_of_the_row(row):
    if "avg" in row.cells:
        average = paper_tables.mean_of([row.cells[column.name] for column in TABLES["7"].columns[:-1]])
        assert average == pytest.approx(row.cells["avg"], abs=0.06)  # average and cells are rounded to one digit
    if "parameters" in row.cells:
        config = AlbertConfig.preset(row.pretraining.model, **row.pretraining.model_fields)
        assert parameter_counts(config).backbone / 1e6 == pytest.approx(row.cells["parameters"][0], rel=0.06)


def test_rows_have_one_directory_exactly_if_they_are_one_experiment():
    experiments = {
        (AlbertConfig.preset(row.model, **row.model_fields), row.objective, row.steps, row.additional_data)
        for row in PRETRAININGS
    }
    assert len({row.slug for row in PRETRAININGS}) == len(experiments) == 24
    assert PaperPretraining("albert-base", embedding_size=128, parameter_sharing="all").slug == "albert-base"
    assert PaperPretraining("albert-base", objective="mlm", dropout=0.2, additional_data=True).slug == (
        "albert-base_dropout-0.2_mlm_more-data"
    )


def measured(name, root):
    """The measured cells of a table, by row."""
    return {row.name: paper_tables.measure(TABLES[name], row, root) for row in TABLES[name].rows}


def test_a_table_has_the_metrics_of_its_runs(tmp_path):
    base = made_runs.pretraining(tmp_path / "albert-base" / "pretrain", PaperPretraining("albert-base"))
    for task, metrics in METRICS.items():
        made_runs.finetuning(tmp_path / "albert-base" / task, task, base, metrics)
    large = made_runs.pretraining(tmp_path / "bert-large" / "pretrain", PaperPretraining("bert-large", objective="nsp"))
    made_runs.finetuning(tmp_path / "bert-large" / "sst2", "sst2", large, METRICS["sst2"])
    rows = measured("2", tmp_path)
    cells = rows["ALBERT base"]
    assert (cells["squad1"], cells["squad2"], cells["mnli"]) == ((60.0, 50.0), (52.0, 48.0), (45.0,))
    assert cells["avg"] == pytest.approx((statistics.fmean([55.0, 50.0, 45.0, 80.0, 25.0]),))
    assert cells["speed"] == pytest.approx((768 / 1024,))
    assert cells["parameters"][0] == parameter_counts(read_settings(base).model).backbone / 1e6
    assert set(rows["BERT large"]) == {"parameters", "sst2", "speed"}
    assert rows["ALBERT xlarge"] == {}
    text = paper_tables.markdown(TABLES["2"], tmp_path)
    line = next(line for line in text.splitlines() if "60.0/50.0" in line)
    assert line.split(" | ")[3:9] == ["60.0/50.0", "52.0/48.0", "45.0", "80.0", "25.0", "51.0"]
    assert "90.4/83.2" in text
    assert text.count("| not run") == 5 + 4 * 8  # BERT large lacks four tasks and Avg; four rows lack everything
    of_large = read_settings(large)
    write(large, replace(of_large, engine=replace(of_large.engine, world_size=4)))
    assert "speed" not in measured("2", tmp_path)["ALBERT base"]  # on other ranks than BERT large
    (base / "done").unlink()
    assert set(measured("2", tmp_path)["ALBERT base"]) == {*METRICS, "avg"}


def test_a_table_has_the_last_evaluation_of_pre_training(tmp_path):
    made_runs.pretraining(tmp_path / "albert-base" / "pretrain", PaperPretraining("albert-base"), sop_accuracy=0.6)
    assert measured("5", tmp_path)["SOP"] == {"mlm_accuracy": (25.0,), "sop_accuracy": (60.0,)}
    assert measured("6", tmp_path)["ALBERT xxlarge"] == {}
    made_runs.pretraining(tmp_path / "albert-xxlarge" / "pretrain", PaperPretraining("albert-xxlarge"))
    assert measured("6", tmp_path)["ALBERT xxlarge"] == {"steps": (2.0,), "hours": (0.5,)}


def test_the_leaderboards_average():
    runs = {}
    for number, (task, wanted) in enumerate(paper_tables.GLUE_SCORE.items()):
        metrics: dict = {}
        for place, (split, metric) in enumerate(wanted):
            metrics.setdefault(split, {})[metric] = 0.1 * number + 0.02 * place
        runs[task] = TaskRun(None, TASKS[task], ResultsRecord(task=task, metrics=metrics))
    # Tasks 0 to 8 have 0, 0.1, ..., 0.8; four of them 0.01 more.
    assert paper_tables.glue_score(runs) == pytest.approx((100 * (3.6 + 4 * 0.01) / 9,))
    del runs["wnli"]
    assert paper_tables.glue_score(runs) is None
