"""From tables to commands: their order and arguments, and how they are printed."""

import hashlib
import json
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline import reproduce
from pipeline.analysis.experiments import Paths, as_makefile, commands
from pipeline.analysis.printed_tables import TABLES
from pipeline.checkpoint.run_records import read_record
from pipeline.pretraining.architecture import parse_fields
from pipeline.settings import finetune_flags, pretrain_flags
from tests.pipeline.analysis import made_runs
from tests.pipeline.records import pretrain_record, write

ALL_TASKS = ["cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli", "squad1", "squad2", "race"]
SHARDS = [Path(name) for name in ("train", "held_out", "more")]


def paths(root=Path("out"), tasks=ALL_TASKS):
    return Paths(root, *SHARDS, {task: Path("data") for task in tasks}, ("deepspeed", "--module"))


def words_after(flag, command):
    return command.argv[command.argv.index(flag) + 1]


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_the_trainers_accept_every_command(table):
    made = commands(table, paths(), scale=0.1, max_hours=9)
    rows = iter(table.pretrainings)
    for number, command in enumerate(made):
        words = command.argv[command.argv.index("--module") + 2 :]
        if "pipeline.pretrain" in command.argv:
            args, row = pretrain_flags.parse(words), next(rows)
            assert parse_fields(args.model_args) == row.model_fields
            assert args.deepspeed_config.exists()
            assert (args.objective, args.steps, args.max_hours) == (row.objective, row.steps / 10, 9)
            assert args.shards == ("more" if row.additional_data else "train",)
            assert args.output / "done" == command.done
        else:
            args = finetune_flags.parse(words)
            assert command.done == args.output / "results.json"
            assert (args.task_word, args.seeds, args.learning_rate) == (args.output.name, 5, None)
            (before,) = [other for other in made[:number] if other.name == command.after]
            assert Path(words_after("--output", before)) in (Path(args.init), Path(args.init).parent)
    assert next(rows, None) is None


def test_table_9_starts_three_tasks_from_mnli():
    made = commands(TABLES["9"], paths())
    assert [words_after("--steps", command) for command in made[:2]] == ["1000000", "1500000"]
    later = [command for command in made if command.after and command.after.endswith("/mnli")]
    assert {words_after("--task", command) for command in later} == {"rte", "stsb", "mrpc"}
    for command in later:
        assert words_after("--init", command) == str(Path(words_after("--output", command)).parent / "mnli" / "seed-0")
    without = commands(TABLES["9"], paths(tasks=["rte", "sst2"]))
    assert all(words_after("--init", command).endswith("pretrain") for command in without[2:])


def test_make_runs_each_training_after_the_one_that_it_starts_from(tmp_path):
    made = commands(TABLES["9"], paths(tmp_path / "a $b"))
    (tmp_path / "rules.mk").write_text(as_makefile(made[1:]))  # the first one is done
    (tmp_path / "deepspeed").write_text('#!/bin/sh\necho "$@" >> order\n')
    (tmp_path / "deepspeed").chmod(0o755)
    subprocess.run(
        ["make", "-j4", "-s", "-f", "rules.mk"], cwd=tmp_path, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, check=True
    )
    order = (tmp_path / "order").read_text().splitlines()
    assert sorted(order) == sorted(" ".join(command.argv[1:]) for command in made[1:])
    places = {command.name: order.index(" ".join(command.argv[1:])) for command in made[1:]}
    assert all(places[command.after] < places[command.name] for command in made[1:] if command.after in places)


@pytest.fixture
def task_data(tmp_path):
    """Training files in the directories of the official archives."""
    for name in ("glue/SST-2/train.tsv", "glue/MNLI/train.tsv", "squad/train-v1.1.json", "RACE/train/high/1.txt"):
        path = tmp_path / "tasks" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    for name in SHARDS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text("{}")
    return tmp_path


def arguments(root, table, *more):
    words = [table, "--out", str(root / "out dir"), "--data-root", str(root / "tasks")]
    return [*words, "--data", str(root / "train"), "--eval-data", str(root / "held_out"), *more]


def test_it_prints_shell_commands_and_writes_nothing(task_data, capsys):
    root = task_data
    assert reproduce.main(arguments(root, "6")) in (None, 0)
    printed = capsys.readouterr().out
    assert "# squad2 is left out" in printed
    lines = [line for line in printed.splitlines() if line and not line.startswith("#")]
    assert len(lines) == 2 + 2 * 4
    assert all(shlex.split(line)[0] == "deepspeed" for line in lines)
    assert str(root / "out dir" / "paper" / "bert-large_400k" / "sst2") in shlex.split(printed)
    assert not (root / "out dir").exists()
    done = root / "out dir" / "paper" / "albert-xxlarge" / "pretrain" / "done"
    done.parent.mkdir(parents=True)
    done.write_text("")
    assert reproduce.main(arguments(root, "6", "--hostfile", "hosts")) in (None, 0)
    printed = capsys.readouterr().out
    assert "\n# bert-large_400k/pretrain\ndeepspeed --hostfile hosts --module pipeline.pretrain " in printed
    assert "# albert-xxlarge/pretrain\n" not in printed
    assert "9 of 10 commands left to run" in printed


def test_collect_makes_the_table_and_the_ensemble(tmp_path, capsys):
    row = TABLES["10"].pretrainings[1]
    root = tmp_path / "0.01"
    base = made_runs.pretraining(root / row.slug / "pretrain", row, data="more")
    tuned = made_runs.finetuning(root / row.slug / "squad1", "squad1", base, {"dev": {"f1": 75.0, "exact": 75.0}})
    made_runs.answers(tuned, "dev", 15, 5)
    shards = tmp_path / "more"
    shards.mkdir()
    (shards / "manifest.json").write_text("{}")
    digest = hashlib.sha256(b"{}").hexdigest()
    write(base, replace(read_record(base), steps=row.steps // 100, data=digest))
    words = ["10", "--out", str(tmp_path), "--scale", "0.01", "--collect", "--additional-data", str(shards)]
    assert reproduce.main(words) in (None, 0)
    assert "75.0/75.0" in capsys.readouterr().out
    (table,) = json.loads((root / "table-10" / "tables.json").read_text())
    measured = {row["name"]: row["measured"]["squad1"] for row in table["rows"]}
    assert measured["ALBERT (1.5M), single"] == measured["ALBERT, ensemble"] == [75.0, 75.0]
    assert table["scale"] == 0.01


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["11"], "table '11' is not known"),
        (["2", "--data-root", "{root}/none"], "is no directory"),
        (["2", "--data", "{root}/tasks"], "holds no shards"),
        (["7"], "--additional-data"),
        (["2", "--scale", "small"], "--scale small"),
    ],
)
def test_mistakes_are_one_line(task_data, capsys, more, message):
    table, *flags = [word.format(root=task_data) for word in more]
    assert reproduce.main(arguments(task_data, table, *flags)) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_runs_of_other_shards_are_not_those_of_a_table(task_data, capsys):
    run = task_data / "out dir" / "paper" / "albert-xxlarge" / "pretrain"
    digest = hashlib.sha256((task_data / "train" / "manifest.json").read_bytes()).hexdigest()
    for data, statuses in ((digest, (None, 0)), ("of other shards", (2,))):
        write(run, pretrain_record(data=data))
        assert reproduce.main(arguments(task_data, "6")) in statuses
    assert f"{run} read other shards than {task_data / 'train'}; choose another --out" in capsys.readouterr().err
