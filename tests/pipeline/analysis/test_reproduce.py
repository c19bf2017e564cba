"""From a table to the commands of its runs, and from their ends to the table."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline import reproduce
from pipeline.analysis.paper_tables import TABLES
from pipeline.settings import finetune_flags, pretrain_flags
from pipeline.settings.pretrain_flags import parse_fields
from pipeline.tasks.registry import TASKS
from tests.pipeline.analysis import made_runs
from tests.pipeline.conftest import REPOSITORY


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
