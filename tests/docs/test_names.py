"""Every file, heading, module, name in a module, flag and command that a page names is there, with its arguments."""

import fnmatch
import importlib
import importlib.util
import re
import shlex
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from benchmarks.gpu import __main__ as gpu
from benchmarks.gpu.parts import PARTS
from data_prep.__main__ import parse as parse_job
from pipeline import evaluate, export, plan, predict
from pipeline.plan import PlanFlags
from pipeline.settings import finetune_flags, pretrain_flags
from pipeline.settings.declare import flags_of
from pipeline.settings.finetune_flags import FinetuneFlags
from pipeline.settings.pretrain_flags import PretrainFlags
from tests.docs.pages import PAGES, REPOSITORY, blocks_of, commands_of, module_command

FOLDERS = "benchmarks|common|data_prep|docs|ds_configs|examples|model|pipeline|tests"
FILE_ENDINGS = {"arrow", "bin", "json", "md", "model", "py", "safetensors"}

FOREIGN_FLAGS = {
    "--exclude": "deepspeed", "--hostfile": "deepspeed", "--include": "deepspeed", "--launcher": "deepspeed",
    "--launcher_args": "deepspeed", "--master_addr": "deepspeed", "--master_port": "deepspeed",
    "--module": "deepspeed", "--no_ssh": "deepspeed", "--num_accelerators": "deepspeed", "--quiet": "deepspeed",
    "--mca": "mpirun", "--mpi": "srun", "--nodes": "srun", "--ntasks-per-node": "srun", "--signal": "sbatch",
    "--local-addr": "torchrun", "--rdzv-conf": "torchrun", "--rdzv-id": "torchrun", "--standalone": "torchrun",
    "--shutdown-timeout": "torchrun", "--nnodes": "torchrun", "--nproc_per_node": "torchrun",
    "--node_rank": "deepspeed", "--force_multi": "deepspeed",
    "--logdir": "tensorboard", "--sync-tensorboard": "wandb", "--private": "hf", "--revision": "hf",
    "--index-url": "pip", "--no-deps": "pip", "--local-dir": "hf", "--volume": "docker",
    "--no-templates": "wikiextractor", "--gpus": "docker", "--ipc": "docker", "--network": "docker",
}  # fmt: skip
"""Flags in the pages that belong to other programs."""

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def text_of(page):
    return page.read_text(encoding="utf-8")


@pages
def test_paths_exist(page):
    named = re.findall(rf"(?<![\w/.-])((?:{FOLDERS})/[\w./-]*)", text_of(page))
    named += re.findall(
        r"`([A-Z]+\.md|[\w.-]+\.example|Makefile|pyproject\.toml|requirements[\w-]*\.(?:txt|lock))`", text_of(page)
    )
    assert {name for name in named if not is_there(name.rstrip(".-"))} == set()


def is_there(name):
    """Whether a file or directory exists, also with the ending .json; NAME stands for one that the reader chooses."""
    return "NAME" in name or (REPOSITORY / name).exists() or (REPOSITORY / f"{name}.json").exists()


@pages
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
        if target.startswith("http"):
            continue
        file, _, anchor = target.partition("#")
        there = page.parent / file if file else page
        assert there.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors_of(there), f"{page.name} links to {target}"


def anchors_of(page):
    """The anchors that GitHub gives to the headings of a page."""
    headings = [block.lines[0].lstrip("# ") for block in blocks_of(page) if block.kind == "heading"]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_sections_that_messages_name_exist():
    files = [
        path for folder in ("common", "data_prep", "model", "pipeline") for path in (REPOSITORY / folder).rglob("*.py")
    ]
    named = {found for file in files for found in re.findall(r'(docs/\w+\.md), "([^"]+)"', text_of(file))}
    assert len(named) >= 2
    for page, section in named:
        headings = [block.lines[0].lstrip("# ") for block in blocks_of(REPOSITORY / page) if block.kind == "heading"]
        assert section in headings, f"{page} has no section {section!r}"


@pages
def test_modules_and_what_is_in_them_exist(page):
    named = re.findall(r"(?<![\w/.-])((?:benchmarks|common|data_prep|model|pipeline)(?:\.\w+)+)", text_of(page))
    missing = {name for name in named if name.split(".")[-1] not in FILE_ENDINGS and not resolves(name)}
    assert not missing


def resolves(name):
    """Whether a dotted name is a module, or a name in one."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.util.find_spec(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        if found is not None:
            if cut == len(parts):
                return True
            value = importlib.import_module(".".join(parts[:cut]))
            return all(hasattr(value, part) and (value := getattr(value, part)) is not None for part in parts[cut:])
    return False


@cache
def flags_of_the_project() -> frozenset[str]:
    """Every flag that is a string in the sources, or declared as a field."""
    sources = [path for folder in FOLDERS.split("|") for path in (REPOSITORY / folder).rglob("*.py")]
    ours = [path for path in sources if "tests" not in path.parts]
    text = "\n".join(path.read_text(encoding="utf-8") for path in ours)
    declared = {one.name for command in (PretrainFlags, FinetuneFlags, PlanFlags) for one in flags_of(command)}
    return declared | frozenset(re.findall(r"(?<![\w-])--[a-z][\w-]*\b", text))


@pages
def test_flags_exist(page):
    named = set(re.findall(r"(?<![\w-])--[a-z][\w-]*\b", text_of(page)))
    missing = named - flags_of_the_project() - set(FOREIGN_FLAGS)
    assert not missing


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
