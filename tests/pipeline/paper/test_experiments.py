"""From tables to commands: their order and arguments, and how they are run."""

import hashlib
import io
import json
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from model import AlbertConfig
from pipeline import reproduce
from pipeline.paper.experiments import Command, Paths, stages
from pipeline.paper.printed_tables import TABLES
from pipeline.paper.runner import Runner
from pipeline.pretraining.architecture import parse_fields
from pipeline.settings import finetune, pretrain
from tests.pipeline.conftest import REPOSITORY

ALL_TASKS = ["cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli", "squad1", "squad2", "race"]
SHARDS = [Path(name) for name in ("train", "held_out", "more")]


def paths(tasks=ALL_TASKS):
    return Paths(
        Path("out"), *SHARDS, {task: Path("data") for task in tasks}, ("deepspeed", "--module"), ("python", "-m")
    )


def words_after(flag, command):
    return command.argv[command.argv.index(flag) + 1]


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_the_trainers_accept_every_command(table):
    made = [command for stage in stages(table, paths(), max_hours=9) for command in stage]
    rows = iter(table.pretrainings)
    for command in made:
        words = command.argv[command.argv.index("--module") + 2 :] if "--module" in command.argv else ()
        if "pipeline.pretrain" in command.argv:
            args, row = pretrain.parse(words), next(rows)
            assert parse_fields(args.model_args) == row.model_fields
            assert args.deepspeed_config.exists()
            assert (args.objective, args.steps, args.max_hours) == (row.objective, row.steps, 9)
            assert args.shards == ("more" if row.additional_data else "train",)
            assert args.output / "done" == command.done
        elif "pipeline.finetune" in command.argv:
            args = finetune.parse(words)
            assert command.done == args.output / "results.json"
            assert (args.task_word, args.seeds, args.learning_rate) == (args.output.name, 5, None)
    assert next(rows, None) is None
    more = [words_after("--additional-data", command) for command in made if "--additional-data" in command.argv]
    assert more == (["more"] if any(row.additional_data for row in table.pretrainings) else [])


def test_table_9_starts_three_tasks_from_mnli_and_averages_two_models():
    pretraining, first, later, ensemble, _ = stages(TABLES["9"], paths())
    assert [words_after("--steps", command) for command in pretraining] == ["1000000", "1500000"]
    assert {words_after("--task", command) for command in later} == {"rte", "stsb", "mrpc"}
    assert {words_after("--task", command) for command in first} == {"cola", "sst2", "qqp", "mnli", "qnli", "wnli"}
    for command in later:
        assert words_after("--init", command) == str(Path(words_after("--output", command)).parent / "mnli" / "seed-0")
    assert len(ensemble[0].argv[ensemble[0].argv.index("--runs") + 1 : -2]) == 18
    without = stages(TABLES["9"], paths(tasks=["rte", "sst2"]))
    assert len(without) == 4
    assert words_after("--init", without[1][0]).endswith("pretrain")


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
    words = [table, "--scale", "paper", "--out", str(root / "out dir"), "--data-root", str(root / "tasks")]
    return [*words, "--data", str(root / "train"), "--eval-data", str(root / "held_out"), *more]


def test_a_dry_run_prints_shell_commands_and_writes_nothing(task_data, capsys):
    root = task_data
    assert reproduce.main(arguments(root, "6", "--dry-run")) == 0
    printed = capsys.readouterr().out
    assert "# squad2 is left out" in printed
    lines = [line for line in printed.splitlines() if line and not line.startswith("#")]
    assert len(lines) == 2 + 2 * 4 + 1
    assert all(shlex.split(line)[0] in ("deepspeed", sys.executable) for line in lines)
    assert str(root / "out dir" / "paper" / "bert-large_400k" / "sst2") in shlex.split(printed)
    assert not (root / "out dir").exists()
    # Commands that are done are not counted as left.
    done = root / "out dir" / "paper" / "albert-xxlarge" / "pretrain" / "done"
    done.parent.mkdir(parents=True)
    done.write_text("")
    assert reproduce.main(arguments(root, "6", "--dry-run", "--hostfile", "hosts")) == 0
    printed = capsys.readouterr().out
    assert "\n# pre-train albert-xxlarge, done\ndeepspeed --hostfile hosts --module pipeline.pretrain " in printed
    assert "# 10 of 11 commands left to run" in printed


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["11"], "table '11' is not known"),
        (["2", "--data-root", "{root}/none"], "is no directory"),
        (["2", "--data", "{root}/tasks"], "holds no shards"),
        (["7"], "--additional-data"),
        (["2", "--max-hours", "-1"], "-1 is not a number of hours above 0"),
        (["2", "--job", "1"], "unknown argument --job"),
    ],
)
def test_mistakes_are_one_line(task_data, capsys, more, message):
    table, *flags = [word.format(root=task_data) for word in more]
    assert reproduce.main(arguments(task_data, table, *flags)) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_command_of_the_pipeline_escapes_what_others_wrote(task_data):
    hostile = task_data.rename(task_data.parent / "a\x1b[2J\u202eb")
    words = [sys.executable, "-m", "pipeline.reproduce", *arguments(hostile, "6", "--dry-run")]
    done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert r"a\x1b[2J\u202eb" in done.stdout
    assert not {"\x1b", "\u202e"} & set(done.stdout)


def test_runs_of_other_shards_are_not_those_of_a_table(task_data, capsys):
    words = arguments(task_data, "6", "--dry-run")
    run = task_data / "out dir" / "paper" / "albert-xxlarge" / "pretrain"
    run.mkdir(parents=True)
    model = AlbertConfig.preset("albert-xxlarge").to_dict()
    settings = {"model": model, "objective": "sop", "steps": 100, "train_batch_size": 64}
    digest = hashlib.sha256((task_data / "train" / "manifest.json").read_bytes()).hexdigest()
    for data, status in ((digest, 0), ("of other shards", 2)):
        (run / "settings.json").write_text(json.dumps(settings | {"data": data}))
        assert reproduce.main(words) == status
    assert f"{run} read other shards than {task_data / 'train'}; choose another --out" in capsys.readouterr().err


APPEND = "import sys; open(sys.argv[1], 'a').write(sys.argv[2]); open(sys.argv[3], 'w')"
"""A command that adds a word to one file and makes another."""


def python(name, code, done=None, *argv):
    return Command(name, (sys.executable, "-c", code, *map(str, argv)), done)


class Writes(io.StringIO):
    """Keeps what each write was given: threads take turns between writes."""

    def __init__(self):
        super().__init__()
        self.given = []

    def write(self, text):
        self.given += [text] if text else []
        return len(text)


def test_commands_run_stage_by_stage_and_once(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdout", printed := Writes())
    log, other = tmp_path / "order", tmp_path / "other"
    first = tuple(python(f"make {n}", APPEND, tmp_path / n, tmp_path / f"part-{n}", n, tmp_path / n) for n in "ab")
    second = (python("join", APPEND, None, log, "x", other),)
    for expected in ("x", "xx"):
        assert Runner(tmp_path / "logs", 2).run([first, second]) == 0
        assert log.read_text() == expected
        assert (tmp_path / "part-a").read_text() == "a"  # not run again
    assert sorted(printed.given[3:5]) == ["[1/3] make a: done before\n", "[2/3] make b: done before\n"]
    assert all(text.count("\n") == 1 for text in printed.given)


def test_a_failed_command_stops_everything_and_is_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdout", printed := Writes())
    after = python("after", "open(__import__('sys').argv[1], 'w')", None, tmp_path / "after")
    runner = Runner(tmp_path / "logs")
    assert runner.run([(python("bad", "print('the reason'); raise SystemExit(7)"), after), (after,)]) == 7
    (text,) = printed.given
    assert text.startswith("[1/3] bad: failed with status 7")
    assert "\nthe reason\n" in text
    assert not (tmp_path / "after").exists()
    killed = python("killed", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert Runner(tmp_path / "logs").run([(killed,)]) == 137  # as a shell has it


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.slow)])
def test_a_signal_reaches_the_running_commands(tmp_path, number):
    code = """
import signal, sys, pathlib
from pipeline.paper.experiments import Command
from pipeline.paper.runner import Runner
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # these tests may run under nohup
child = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(75)); open(sys.argv[1], 'w'); time.sleep(60)"
here = pathlib.Path(sys.argv[1])
stage = tuple(Command(n, (sys.executable, "-c", child, str(here / n))) for n in "ab")
sys.exit(Runner(here / "logs", 2).run([stage, stage]))
"""
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 1500
    while not all((tmp_path / name).exists() for name in "ab"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    children = psutil.Process(process.pid).children()
    process.send_signal(number)
    output, _ = process.communicate(timeout=1500)
    assert process.returncode == 75
    assert "the same command resumes it" in output
    assert not any(child.is_running() for child in children)
