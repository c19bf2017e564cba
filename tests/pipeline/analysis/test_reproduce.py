"""The paper's tables: their values agree, and each cell is that of its run; from a table to commands and back."""

import os
import statistics
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from model import AlbertConfig
from model.counts import parameter_counts
from pipeline import reproduce
from pipeline.analysis import paper_tables
from pipeline.analysis.comparison import TaskRun
from pipeline.analysis.paper_tables import TABLES, PaperPretraining
from pipeline.checkpoint.run_directory import ResultsRecord
from pipeline.settings import finetune_flags, pretrain_flags
from pipeline.settings.pretrain_flags import parse_fields
from pipeline.settings.settings_file import read_settings
from pipeline.tasks.registry import TASKS
from tests.pipeline.analysis import made_runs
from tests.pipeline.conftest import REPOSITORY
from tests.pipeline.records import write


def commands_of(name, tasks=TASKS, *more):
    words = ["--out", "out", "--data", "train", "--eval-data", "held_out", "--additional-data", "more"]
    args = reproduce.parser().parse_all([name, *words, *more])
    return reproduce.commands(TABLES[name], args, {task: Path("data") for task in tasks})


def words_after(flag, command):
    return command[command.index(flag) + 1]


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_the_trainers_accept_every_command(table):
    made = commands_of(table.name, TASKS, "--scale", "0.1", "--max-hours", "9")
    rows = iter(table.pretrainings)
    outputs = []
    for name, command in made.items():
        words = command[command.index("--module") + 2 :]
        if "pipeline.pretrain" in command:
            args, row = pretrain_flags.parse(words), next(rows)
            assert parse_fields(args.model_args) == row.model_fields
            assert args.deepspeed_config.exists()
            assert (args.objective, args.steps, args.max_hours) == (row.objective, row.steps / 10, 9)
            assert args.shards == ("more" if row.additional_data else "train",)
        else:
            args = finetune_flags.parse(words)
            assert (args.task_word, args.seeds, args.learning_rate) == (args.output.name, 5, None)
            assert {Path(args.init), Path(args.init).parent} & set(outputs)  # it comes after what it starts from
        assert args.output == Path("out") / "0.1" / name
        outputs.append(args.output)
    assert next(rows, None) is None


def test_table_9_starts_three_tasks_from_mnli():
    made = commands_of("9")
    assert [words_after("--steps", command) for command in list(made.values())[:2]] == ["1000000", "1500000"]
    from_mnli = [command for command in made.values() if command.count("--init") and "/mnli/seed-0" in str(command)]
    assert {words_after("--task", command) for command in from_mnli} == {"rte", "stsb", "mrpc"}
    without = list(commands_of("9", ["rte", "sst2"]).values())
    assert all(words_after("--init", command).endswith("pretrain") for command in without[2:])


@pytest.fixture
def task_data(tmp_path):
    """Training files in the directories of the official archives."""
    for name in ("glue/SST-2/train.tsv", "glue/MNLI/train.tsv", "squad/train-v1.1.json", "RACE/train/high/1.txt"):
        path = tmp_path / "tasks" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    for name in ("train", "held_out"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text("{}")
    return tmp_path


def test_the_script_runs_nothing_that_a_path_says(task_data, tmp_path):
    """bash runs it, with a `deepspeed` that only says its first words."""
    root = tmp_path / "a\ntouch ran\n#$(touch ran)`touch ran`'; touch ran"
    task_data.joinpath("tasks").rename(root)
    words = ["6", "--out", f"out{root.name}", "--data-root", str(root), "--hostfile", "hosts"]
    words += ["--data", str(task_data / "train"), "--eval-data", str(task_data / "held_out")]
    command, options = [sys.executable, "-m", "pipeline.reproduce", *words], {"capture_output": True, "text": True}
    script = subprocess.run(command, cwd=REPOSITORY, check=True, **options).stdout
    assert "# squad2 is left out" in script
    assert "touch ran" in script
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "deepspeed").write_text('#!/bin/sh\necho "$1 $2 $3"\n')
    (programs / "deepspeed").chmod(0o755)
    environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"}
    ended = subprocess.run(["bash", "-e"], input=script, cwd=tmp_path, env=environment, check=True, **options)
    assert ended.stdout.split() == ["--hostfile", "hosts", "--module"] * (2 + 2 * 4)
    assert not (tmp_path / "ran").exists()
    assert not (REPOSITORY / words[2]).exists()


def test_collect_makes_the_table(tmp_path, capsys):
    row = TABLES["10"].pretrainings[1]
    home = tmp_path / "0.01" / row.slug
    tuned = made_runs.finetuning(home / "squad1", "squad1", home / "pretrain", {"dev": {"f1": 75.0, "exact": 75.0}})
    made_runs.answers(tuned, "dev", 15, 5)
    assert reproduce.main(["10", "--out", str(tmp_path), "--scale", "0.01", "--collect"]) in (None, 0)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("; here 0.01 of the paper's steps")
    names = [line.split(" | ")[2] for line in lines if line.startswith("|  | measured")]
    assert names == ["not run", "75.0/75.0"]  # 1M, 1.5M


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["11"], "table '11' is not known"),
        (["2", "--data-root", "{root}/none"], "is no directory"),
        (["7"], "--additional-data"),
        (["2", "--scale", "small"], "--scale small"),
    ],
)
def test_mistakes_are_one_line(task_data, refusal, more, message):
    table, *flags = [word.format(root=task_data) for word in more]
    words = [table, "--out", task_data / "out", "--data-root", task_data / "tasks", "--data", task_data / "train"]
    assert message in refusal(reproduce.main, *words, "--eval-data", task_data / "held_out", *flags)


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
