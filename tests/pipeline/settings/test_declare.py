"""A flag is declared once: the command line, YAML, records and identity follow from the field."""

import dataclasses
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from common.command_line import positive
from common.errors import UserError
from data_prep.__main__ import JOBS
from pipeline.__main__ import commands
from pipeline.settings import declare, finetune_flags, pretrain_flags
from pipeline.settings.declare import flag
from pipeline.settings.run_flags import RunFlags
from tests.pipeline.conftest import REPOSITORY

PRETRAIN = ["--model", "albert-tiny", "--data", "a:3", "b", "--deepspeed_config", "c.json", "--output", "run"]


@dataclass(frozen=True, kw_only=True)
class ToolFlags:
    output: Path = flag("where to write", metavar="DIR", group="files")
    data: tuple[str, ...] = flag("what to read", (), metavar="DIR")
    names: tuple[str, ...] = flag("what to call it", (), extend=True)
    steps: int = flag("how often", 10, positive, group="work")
    rate: float | None = flag("how fast", None, metavar="R")
    kind: Literal["one", "two"] | None = flag("which", None)
    switch: Literal["auto", "on", "off"] = flag("whether", "auto", alone="on")
    exact: bool = flag("how exactly", False, name="--exact-sums")
    column: str | None = flag("which column", None, metavar="NAME")
    base: Path | None = flag("a file", None, metavar="FILE")


def parse(*words):
    return declare.parse(ToolFlags, declare.make_parser(ToolFlags, "tool", "A tool."), ["--output", "out", *words])


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        ("", "steps", 10),
        ("--steps 3", "steps", 3),
        ("--rate 1e-5", "rate", 1e-5),
        ("--kind two", "kind", "two"),
        ("--switch", "switch", "on"),
        ("--switch off", "switch", "off"),
        ("--exact-sums", "exact", True),
        ("--exact-sums false", "exact", False),
        ("--names a b --names c", "names", ("a", "b", "c")),
        ("--local_rank 3", "steps", 10),
    ],
)
def test_the_annotation_says_what_a_flag_takes(words, field, value):
    assert getattr(parse(*words.split()), field) == value


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--stepz 3", "unknown argument --stepz; did you mean --steps"),
        ("--steps 0", "argument --steps: 0 is not at least 1"),
        ("--steps many", "argument --steps: invalid positive whole number value: 'many'"),
        ("--kind three", "argument --kind: invalid choice: 'three'"),
        ("--exact-sums perhaps", "argument --exact-sums: 'perhaps' is neither true nor false"),
        ("--data s3://bucket/a", "--data s3://bucket/a: URLs are not supported here"),
        ("--config nowhere.yaml", "nowhere.yaml does not exist"),
        ("--config a.yaml --config=b.yaml", "--config is given twice; put all flags into one file"),
    ],
)
def test_a_mistake_on_the_command_line(words, message):
    with pytest.raises(UserError, match=message):
        parse(*words.split())


def in_file(tmp_path, text, *words):
    (tmp_path / "run.yaml").write_text(text)
    return parse("--config", str(tmp_path / "run.yaml"), *words)


def test_a_file_has_any_flag_and_the_command_line_wins(tmp_path):
    text = "steps: 3\nrate: 1e-5\nswitch: on\nexact-sums: true\nkind: null\ndata: [a:3, b]\nnames:\n- x\n- y\n"
    expected = parse(
        *["--steps", "3", "--rate", "1e-5", "--switch", "on", "--exact-sums", "--data", "a:3", "b", "--names", "x", "y"]
    )
    assert in_file(tmp_path, text) == expected
    assert in_file(tmp_path, text.replace("exact-sums", "exact_sums")) == expected
    found = in_file(tmp_path, text, "--steps", "4", "--names=z", "--exact-sums", "false")
    assert (found.steps, found.names, found.exact, found.rate) == (4, ("z",), False, 1e-5)
    assert in_file(tmp_path, "") == in_file(tmp_path, "# nothing\n") == parse()
    assert in_file(tmp_path, "data: one\n").data == ("one",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("steps: 3\nstepz: 4\n", "run.yaml: unknown key 'stepz'; did you mean steps?"),
        ("help: true\n", "unknown key 'help'; the keys are the flags without the dashes"),
        ("steps: 3\nsteps: 4\n", "run.yaml: steps is given twice; keep one"),
        ("steps: 1e3\n", "argument --steps: invalid positive whole number value: '1e3'"),
        ("steps: {a: 3}\n", "steps must be one value, or a list of values"),
        ("steps: [3\n", "run.yaml is not YAML: .*; correct it"),
        ("- steps\n", "it must have a line of the form `flag: value`"),
        ("data: ['']\n", "the argument of --data is empty"),
        ("data: [a, --output, x]\n", "data: '--output' begins with a dash, as a flag does"),
        ("names: -x\n", "names: '-x' begins with a dash"),
    ],
)
def test_a_mistake_in_a_file(tmp_path, text, message):
    with pytest.raises(UserError, match=message):
        in_file(tmp_path, text)


@pytest.mark.parametrize("column", ["null", "~", "-x", "--steps", "", "yes", "1_0", "a: b", "# c", " d", "é"])
def test_a_column_of_any_name_is_written_and_read_again(tmp_path, column):
    flags = parse(f"--column={column}")
    assert flags.column == column
    assert in_file(tmp_path, declare.to_yaml(flags)).column == column


def test_a_null_that_is_not_quoted_is_no_value_and_a_path_may_begin_at_home(tmp_path, monkeypatch):
    assert [in_file(tmp_path, f"column: {value}\n").column for value in ("null", "~", "", "'null'", '"~"')] == [
        *(None, None, None, "null", "~"),
    ]
    monkeypatch.setenv("HOME", str(tmp_path))
    found = in_file(tmp_path, "base: ~/x.json\ndata: [~/a:3, b]\ncolumn: ~/c\n")
    assert (found.base, found.data, found.column) == (tmp_path / "x.json", (f"{tmp_path}/a:3", "b"), "~/c")


def test_a_flag_that_is_gone_is_left_out_where_a_run_recorded_it_or_it_has_no_value(tmp_path):
    (path := tmp_path / "config.yaml").write_text("mirror: s3://bucket/run\ntrack:\n- wandb\nseed: 3\n")
    assert declare.with_file(RunFlags, [], path) == ["--seed=3"]
    with pytest.raises(UserError, match="unknown key 'mirror'; this flag is gone"):
        declare.with_file(RunFlags, ["--config", str(path)])
    path.write_text("mirror: null\ntrack: []\nseed: 3\n")
    assert declare.with_file(RunFlags, ["--config", str(path)])[0] == "--seed=3"


VALUES = "--steps 3 --rate 1e-5 --switch --exact-sums --kind two --data a:3 b --names on null 1"


@pytest.mark.parametrize("words", ["", VALUES])
def test_flags_can_be_written_and_read_again(tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").mkdir()
    flags = parse(*words.split())
    (tmp_path / "all.yaml").write_text(declare.to_yaml(flags))
    from_file = declare.parse(ToolFlags, declare.make_parser(ToolFlags, "t", ""), ["--config", "all.yaml"])
    assert declare.to_yaml(from_file) == declare.to_yaml(flags)
    assert from_file.output == tmp_path / "out"
    # What exists is absolute.
    assert from_file.data == tuple(word.replace("a:", f"{tmp_path}/a:") for word in flags.data)
    assert dataclasses.replace(from_file, output=flags.output, data=flags.data) == flags


STARTS = [(f"pipeline.{name}", ["--help"]) for name in commands() if name != "data"]
STARTS += [("data_prep.__main__", ["--help"]), ("pipeline.finetune", ["--stepz", "3"])]
STARTS += [("data_prep.__main__", [job, "--help"]) for job in JOBS]


@pytest.mark.parametrize(("module", "words"), STARTS)
def test_help_and_mistakes_need_no_torch_and_80_columns(module, words, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    slow = {"numpy", "pyarrow", "mpi4py", "torch"} if module == "data_prep.__main__" and not words[1:] else {"torch"}
    code = (
        "import runpy, sys\n"
        f"sys.argv = ['x', *{words!r}]\n"
        f"try: runpy.run_module({module!r}, run_name='__main__')\n"
        f"finally: assert not {slow!r} & set(sys.modules)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=REPOSITORY)
    assert "AssertionError" not in ended.stderr
    assert ended.stdout.startswith("usage: ") if words[-1] == "--help" else "did you mean --steps?" in ended.stderr
    assert [line for line in ended.stdout.splitlines() if len(line) > 80] == []


def test_finetune_takes_its_task_from_the_run(tmp_path):
    (tmp_path / "config.yaml").write_text("task: sst2\ninit: a\ndata: b\nsteps: 7\n")
    flags = finetune_flags.parse(["--output", str(tmp_path), "--steps", "8"])
    assert (flags.task_word, flags.init, flags.steps) == ("sst2", Path("a"), 8)
    (tmp_path / "other.yaml").write_text("task: cola\ninit: c\ndata: d\n")
    flags = finetune_flags.parse(["--output", str(tmp_path), "--config", str(tmp_path / "other.yaml")])
    assert (flags.task_word, flags.steps) == ("cola", None)


def test_the_shipped_file_of_flags_is_read():
    flags = pretrain_flags.parse(["--config", str(REPOSITORY / "examples" / "run.yaml"), "--seed", "2"])
    assert (flags.preset, flags.seed, flags.deterministic) == ("albert-base", 2, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--batch-size 1048577", "argument --batch-size: 1048577 is not at least 1 and at most 1048576"),
        ("--micro-batch-size 1000000000", "argument --micro-batch-size"),
        (f"--seed {2**63 - 2} --seeds 3", "go beyond 2..63 - 1; give a smaller --seed"),
    ],
)
def test_numbers_of_fine_tuning_have_bounds(tmp_path, words, message):
    given = ["--task", "rte", "--init", str(tmp_path), "--data", str(tmp_path), "--output", str(tmp_path / "run")]
    with pytest.raises(UserError, match=message):
        finetune_flags.parse([*given, *words.split()])
    last = [*given, "--batch-size", "1048576", "--seed", str(2**63 - 3), "--seeds", "3"]
    assert finetune_flags.parse(last).batch_size == 1 << 20


def test_timeouts_have_bounds():
    flags = pretrain_flags.parse([*PRETRAIN, "--host-timeout", "3600", "--hang-timeout", "0"])
    assert (flags.host_timeout, flags.hang_timeout) == (3600.0, 0.0)
    for words in (["--host-timeout", "2.9"], ["--host-timeout", "3601"], ["--hang-timeout", "0.5"]):
        with pytest.raises(UserError, match=rf"{words[1]} is not "):
            pretrain_flags.parse([*PRETRAIN, *words])
