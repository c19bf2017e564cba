"""From tables to commands: their order and arguments, and how they are run."""

import hashlib
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
from pipeline.paper import experiments
from pipeline.paper.experiments import Command, Paths, stages
from pipeline.paper.printed_tables import TABLES
from pipeline.paper.runner import Runner
from pipeline.paper.scales import PAPER, TINY
from pipeline.pretraining.architecture import parse_fields
from pipeline.settings import finetune, pretrain

ALL_TASKS = ["cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli", "squad1", "squad2", "race"]
SHARDS = [Path(name) for name in ("train", "held_out", "more")]


def paths(tasks=ALL_TASKS, shards=SHARDS):
    return Paths(
        Path("out"), *shards, {task: Path("data") for task in tasks}, ("deepspeed", "--module"), ("python", "-m")
    )


def words_after(flag, command):
    return command.argv[command.argv.index(flag) + 1]


def test_table_2_is_six_models_on_five_tasks():
    pretrain, finetune, table = stages(TABLES["2"], PAPER, paths())
    assert [words_after("--model", command) for command in pretrain] == [
        "bert-base", "bert-large", "albert-base", "albert-large", "albert-xlarge", "albert-xxlarge",
    ]  # fmt: skip
    assert len(finetune) == 30
    assert {words_after("--steps", command) for command in pretrain} == {"125000"}
    assert [words_after("--objective", command) for command in pretrain] == ["nsp"] * 2 + ["sop"] * 4
    for command in finetune:
        assert words_after("--init", command) == str(Path(words_after("--output", command)).parent / "pretrain")
    assert table[0].argv[2:4] == ("pipeline.evaluate", "tables")


def test_pretrain_accepts_every_command():
    for table in TABLES.values():
        for scale in (PAPER, TINY):
            for row in experiments.distinct_rows(table):
                command = experiments.pretraining_command(row, scale, paths(), max_hours=None)
                module = command.argv.index("pipeline.pretrain")
                args = pretrain.parse(command.argv[module + 1 :])
                fields = parse_fields(args.model_args)
                assert fields == scale.model_fields(row)
                assert args.deepspeed_config.exists()
                assert (args.objective, args.steps) == (scale.objective(row), scale.steps(row))
                assert args.shards == ("more" if row.additional_data else "train",)
                assert args.output / "done" == command.done


def test_rows_that_tables_share_have_one_directory():
    outputs = {}
    for name in "234578":
        for command in stages(TABLES[name], PAPER, paths())[0]:
            outputs.setdefault(words_after("--output", command), set()).add(command.argv)
    assert all(len(words) == 1 for words in outputs.values())
    assert len(outputs) == 22


def test_table_9_starts_three_tasks_from_mnli_and_averages_two_models():
    pretrain, first, later, ensemble, _ = stages(TABLES["9"], PAPER, paths())
    assert [words_after("--steps", command) for command in pretrain] == ["1000000", "1500000"]
    assert {words_after("--task", command) for command in later} == {"rte", "stsb", "mrpc"}
    assert {words_after("--task", command) for command in first} == {"cola", "sst2", "qqp", "mnli", "qnli", "wnli"}
    for command in later:
        assert words_after("--init", command) == str(Path(words_after("--output", command)).parent / "mnli" / "seed-0")
    assert len(ensemble[0].argv[ensemble[0].argv.index("--runs") + 1 : -2]) == 18
    without = stages(TABLES["9"], PAPER, paths(tasks=["rte", "sst2"]))
    assert len(without) == 4
    assert words_after("--init", without[1][0]).endswith("pretrain")


def test_finetune_accepts_every_command():
    for scale in (PAPER, TINY):
        for name in ("2", "9"):
            made = [command for stage in stages(TABLES[name], scale, paths()) for command in stage]
            commands = [command for command in made if "pipeline.finetune" in command.argv]
            assert len(commands) == {"2": 30, "9": 18}[name]
            for command in commands:
                args = finetune.parse(command.argv[command.argv.index("pipeline.finetune") + 1 :])
                assert command.done == args.output / ("results.json" if scale is PAPER else "done")
                assert args.task_word == args.output.name
                assert args.seeds == (5 if scale is PAPER else None)
                assert (args.learning_rate is None) == (scale is PAPER)


def test_table_5_varies_the_sentence_loss_alone():
    pretrain = stages(TABLES["5"], TINY, paths())[0]
    assert [words_after("--objective", command) for command in pretrain] == ["mlm", "nsp", "sop"]
    assert len({words_after("--model", command) for command in pretrain}) == 1


def test_the_sample_corpus_is_made_if_no_shards_are_given():
    made = stages(TABLES["7"], TINY, paths(shards=[None, None, None]))
    names = [[command.name for command in stage] for stage in made]
    assert names[:3] == [["sample"], ["extract wikipedia", "extract books"], ["vocabulary"]]
    assert names[3] == ["shards train", "shards held_out", "shards more"]
    produced = {Path(words_after("--out", command)) for command in made[3]}
    for command in made[4]:
        assert Path(words_after("--data", command)) in produced
        assert Path(words_after("--eval-data", command)) in produced
    plain, more = made[4]
    assert (words_after("--data", plain), words_after("--data", more)) == (
        "out/corpus/shards/train",
        "out/corpus/shards/more",
    )


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
    """At scale tiny unless `more` has another; the last of two counts."""
    return [table, "--scale", "tiny", "--out", str(root / "out dir"), "--data-root", str(root / "tasks"), *more]


def test_a_dry_run_prints_shell_commands_and_writes_nothing(task_data, capsys):
    root = task_data
    shards = ["--data", str(root / "train"), "--eval-data", str(root / "held_out")]
    assert reproduce.main(arguments(root, "6", "--scale", "paper", "--dry-run", *shards)) == 0
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
    assert reproduce.main(arguments(root, "6", "--scale", "paper", "--dry-run", *shards)) == 0
    printed = capsys.readouterr().out
    assert "\n# pre-train albert-xxlarge, done\n" in printed
    assert "# 10 of 11 commands left to run" in printed


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["11"], "table '11' is not known"),
        (["2", "--scale", "paper"], "--data and --eval-data are missing"),
        (["2", "--data", "{root}/train"], "go together"),
        (["2", "--data", "{root}/tasks", "--eval-data", "{root}/held_out"], "holds no shards"),
        (["7", "--data", "{root}/train", "--eval-data", "{root}/held_out"], "--additional-data"),
        (["2", "--jobs", "0"], "argument --jobs: 0 is not at least 1"),
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


def test_runs_of_other_shards_are_not_those_of_a_table(task_data, capsys):
    shards = ["--data", str(task_data / "train"), "--eval-data", str(task_data / "held_out")]
    words = arguments(task_data, "6", "--dry-run", *shards)
    run = task_data / "out dir" / "tiny" / "albert-xxlarge" / "pretrain"
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


def test_commands_run_stage_by_stage_and_once(tmp_path, capsys):
    log, other = tmp_path / "order", tmp_path / "other"
    first = tuple(python(f"make {n}", APPEND, tmp_path / n, tmp_path / f"part-{n}", n, tmp_path / n) for n in "ab")
    second = (python("join", APPEND, None, log, "x", other),)
    for expected in ("x", "xx"):
        assert Runner(tmp_path / "logs", 2).run([first, second]) == 0
        assert log.read_text() == expected
        assert (tmp_path / "part-a").read_text() == "a"  # not run again
    assert capsys.readouterr().out.count("done before") == 2


def test_a_failed_command_stops_everything_and_is_shown(tmp_path, capsys):
    after = python("after", "open(__import__('sys').argv[1], 'w')", None, tmp_path / "after")
    runner = Runner(tmp_path / "logs")
    assert runner.run([(python("bad", "print('the reason'); raise SystemExit(7)"), after), (after,)]) == 7
    printed = capsys.readouterr().out
    assert "[1/3] bad: failed with status 7" in printed
    assert "the reason" in printed
    assert not (tmp_path / "after").exists()
    killed = python("killed", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert Runner(tmp_path / "logs").run([(killed,)]) == 137  # as a shell has it


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
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
    deadline = time.monotonic() + 300
    while not all((tmp_path / name).exists() for name in "ab"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    children = psutil.Process(process.pid).children()
    process.send_signal(number)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 75
    assert "the same command resumes it" in output
    assert not any(child.is_running() for child in children)
