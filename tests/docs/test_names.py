"""Every file, heading, module, name in a module, and flag that a page names is there."""

import importlib
import importlib.util
import re
from functools import cache

import pytest

from pipeline.plan import PlanFlags
from pipeline.settings.declare import flags_of
from pipeline.settings.finetune_flags import FinetuneFlags
from pipeline.settings.pretrain_flags import PretrainFlags
from tests.docs.pages import PAGES, REPOSITORY, blocks_of

FOLDERS = "benchmarks|common|data_prep|docs|ds_configs|examples|model|pipeline|tests"
FILE_ENDINGS = {"arrow", "bin", "json", "md", "model", "py", "safetensors"}

FOREIGN_FLAGS = {
    "--exclude": "deepspeed", "--hostfile": "deepspeed", "--include": "deepspeed", "--launcher": "deepspeed",
    "--launcher_args": "deepspeed", "--master_addr": "deepspeed", "--master_port": "deepspeed",
    "--module": "deepspeed", "--no_ssh": "deepspeed", "--num_accelerators": "deepspeed", "--quiet": "deepspeed",
    "--mca": "mpirun", "--mpi": "srun", "--nodes": "srun", "--ntasks-per-node": "srun", "--signal": "sbatch",
    "--local-addr": "torchrun", "--rdzv-conf": "torchrun", "--rdzv-id": "torchrun", "--standalone": "torchrun",
    "--shutdown-timeout": "torchrun", "--nnodes": "torchrun", "--nproc_per_node": "torchrun",
    "--node_rank": "deepspeed",
    "--logdir": "tensorboard", "--sync-tensorboard": "wandb", "--private": "hf", "--revision": "hf",
    "--index-url": "pip",
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
    ours = [path for path in sources if "tests" not in path.parts or "fuzz" in path.parts]
    text = "\n".join(path.read_text(encoding="utf-8") for path in ours)
    declared = {one.name for command in (PretrainFlags, FinetuneFlags, PlanFlags) for one in flags_of(command)}
    return declared | frozenset(re.findall(r"(?<![\w-])--[a-z][\w-]*\b", text))


@pages
def test_flags_exist(page):
    named = set(re.findall(r"(?<![\w-])--[a-z][\w-]*\b", text_of(page)))
    missing = named - flags_of_the_project() - set(FOREIGN_FLAGS)
    assert not missing
