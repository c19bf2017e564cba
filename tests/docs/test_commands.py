"""Each command in the pages that starts one of the project's modules has arguments that the module takes."""

import fnmatch
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.gpu import __main__ as gpu
from benchmarks.gpu.parts import PARTS
from data_prep.__main__ import parse as parse_job
from pipeline import evaluate, export, plan, predict
from pipeline.settings import finetune_flags, pretrain_flags
from tests.docs.pages import PAGES, REPOSITORY, commands_of, module_command


def limits_of_parts(words: list[str]) -> list[int]:
    """The seconds that a command of benchmarks.gpu gives its parts. A name that is no part fails."""
    given = gpu.parser().parse_all([word for word in words if word != "&"]).part or []
    limits = {name: gpu._limit(seconds) for name, _, seconds in (word.partition(":") for word in given)}
    assert limits.keys() <= PARTS.keys()
    return list(limits.values())


PARSERS: dict[str, Callable[[list[str]], object]] = {
    "benchmarks.gpu": limits_of_parts,
    "data_prep": parse_job,
    "pipeline.export": lambda words: export.parser().parse_all(words),
    "pipeline.evaluate": lambda words: evaluate.parser().parse_args(words),
    "pipeline.finetune": lambda words: finetune_flags.parser().parse_all(words),
    "pipeline.predict": lambda words: predict.parser().parse_all(words),
    "pipeline.plan": plan.parse,
    "pipeline.pretrain": pretrain_flags.parse,
}
"""Of the modules whose parser can be had without running them; of the others the flags are looked for in the source."""


FOUND = [(page.name, command) for page in PAGES for _, command in commands_of(page) if module_command(command)]


@pytest.mark.parametrize(("page", "command"), FOUND)
def test_its_arguments_are_those_of_the_module(page, command):
    module, words = module_command(command)
    is_synopsis = re.search(r"\[|\.\.\.", " ".join(words))
    if module in PARSERS and not is_synopsis:
        PARSERS[module](words)
    else:
        path = REPOSITORY / module.replace(".", "/")
        files = path.rglob("*.py") if path.is_dir() else [path.with_suffix(".py")]
        source = "\n".join(file.read_text(encoding="utf-8") for file in files)
        for flag in re.findall(r"--[a-z][\w-]*", " ".join(words)):
            assert f'"{flag}"' in source, f"{module} has no {flag}"
    for config in (Path(word) for word in words if word.startswith("ds_configs/")):
        assert (REPOSITORY / config).is_file()


def test_the_plan_prints_what_its_page_shows(capsys):
    page = REPOSITORY / "docs" / "plan.md"
    command = next(command for _, command in commands_of(page) if "pipeline.plan" in command)
    shown = re.search(r"```text\n(.*?)\n```", page.read_text(encoding="utf-8"), re.DOTALL).group(1)
    words = shlex.split(command)
    file = words.index("--deepspeed_config") + 1
    words[file] = str(REPOSITORY / words[file])
    assert plan.main(words[words.index("pipeline.plan") + 1 :]) == 0
    assert capsys.readouterr().out.strip() == shown


GPU_PAGE = REPOSITORY / "docs" / "gpu.md"


def test_every_part_that_the_page_on_gpus_names_exists_and_every_part_is_named():
    text = GPU_PAGE.read_text(encoding="utf-8")
    named = set(re.findall(r"(?<![\w/.-])((?:run|profile|tests|speed)-[\w-]+|several-ranks|scaling)\b", text))
    patterns = {name: re.sub("MODEL|LENGTH|PRECISION", "*", name) for name in named}
    assert {name for name, pattern in patterns.items() if not fnmatch.filter(PARTS, pattern)} == set()
    rows = re.findall(r"^\| `([\w-]+)` \|", text, re.MULTILINE)
    assert {part for row in rows for part in fnmatch.filter(PARTS, patterns[row])} == set(PARTS)


def test_the_list_of_parts_takes_at_most_thirteen_minutes():
    seconds, beside = 0, [0]
    for _, command in commands_of(GPU_PAGE, "## The parts"):
        if command == "wait":
            seconds, beside = seconds + max(beside), [0]
        elif (found := module_command(command)) and any(":" in word for word in found[1]):
            taken = sum(limits_of_parts(found[1]))
            if command.endswith("&"):
                beside.append(taken)
            else:
                seconds += taken
    assert beside == [0], "the list ends before what runs beside has ended"
    assert 600 < seconds <= 13 * 60
