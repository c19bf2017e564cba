"""The direction of imports between packages: entry points at the top, common/ at the bottom, no circles.

A package is a top-level package or one folder below it; what lies deeper counts as part of that folder. So is a module
that has a layer of its own. Every import counts, also one inside a function or for type checking only.

A package of others that is imported as a whole offers what is read from it: many load their modules when asked.
"""

import ast
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
TOP_LEVEL = ("common", "data_prep", "model", "pipeline")
WHOLE = ("common", "model")
"""Packages whose folders count as part of them."""

ENTRY_POINTS = "the entry points of pipeline"
JOBS = "the command line of data_prep"

LAYERS = (
    (ENTRY_POINTS,),
    ("pipeline.pretraining", "pipeline.finetuning"),
    ("pipeline.run",),
    ("pipeline.sharing",),
    ("pipeline.analysis",),
    ("pipeline.training",),
    ("pipeline.checkpoint",),
    ("pipeline.settings",),
    ("pipeline.tasks",),
    ("pipeline.engine",),
    ("pipeline.distributed", "pipeline.data"),
    ("model", JOBS),
    ("data_prep.jobs",),
    ("data_prep.sources",),
    ("data_prep.format", "data_prep.corpus"),
    ("data_prep.wikitext",),
    ("data_prep.mpi", "data_prep.text"),
    ("common",),
)
"""From the top down. A package may import itself and the layers below its own, so there is no circle."""


def imports() -> Iterator[tuple[str, str]]:
    """Each module of the project, with dots, with each module of the project that it imports."""
    modules = {}
    for top in TOP_LEVEL:
        for path in sorted((REPOSITORY / top).rglob("*.py")):
            name = ".".join(path.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__")
            modules[name] = path
    for module, path in modules.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path} has a relative import; name the package"
                # `from package import module` imports a module, `from module import name` the module itself.
                inside = [f"{node.module}.{alias.name}" for alias in node.names]
                names = [name if name in modules else str(node.module) for name in inside]
            yield from ((module, name) for name in names if name.partition(".")[0] in TOP_LEVEL)


def package_of(module: str) -> str:
    """The package that a module counts as part of."""
    top, *rest = module.split(".")
    if top in WHOLE or not rest:
        return top
    name = f"{top}.{rest[0]}"
    if len(rest) > 1 or (REPOSITORY / top / rest[0]).is_dir() or any(name in layer for layer in LAYERS):
        return name
    return {"pipeline": ENTRY_POINTS, "data_prep": JOBS}[top]


def test_imports_point_downwards() -> None:
    level = {package: number for number, packages in enumerate(LAYERS) for package in packages}
    for module, other in imports():
        here, there = package_of(module), package_of(other)
        assert {here, there} <= {*level, *TOP_LEVEL}, f"a package of {module} or {other} has no layer"
        if here in level and there in level:
            is_own = here == there and here != ENTRY_POINTS
            assert is_own or level[here] < level[there], f"{module} imports {other}"
        if not module.startswith("pipeline"):
            assert other.partition(".")[0] in (module.partition(".")[0], "common"), f"{module} imports {other}"


OURS = (*TOP_LEVEL, "albert_pretraining")
SLOW = {"torch", "deepspeed", "transformers"}
"""They take seconds to import, and every test process reads from them."""

CHECK = """
import functools, importlib, json, os, sys
packages = json.load(sys.stdin)
for package, reads in packages.items():
    if os.fork():
        if os.wait()[1]:
            sys.exit(1)
        continue
    module = importlib.import_module(package)
    for file, imports, name in reads:  # each in a process that has read nothing else
        if os.fork():
            if os.wait()[1]:
                sys.exit(f"{file} reads {package}.{name}")
            continue
        for submodule in imports:
            importlib.import_module(submodule)
        functools.reduce(getattr, name.split("."), module)
        os._exit(0)
    os._exit(0)
"""


def reads() -> dict[str, list[tuple[str, list[str], str]]]:
    """By package: the file that imports it as a whole, the modules of it that the file imports, and a name it reads."""
    found = defaultdict(list)
    for path in (file for package in OURS for file in sorted((REPOSITORY / package).rglob("*.py"))):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        imported = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
        imported += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
        names = {read for node in nodes if isinstance(node, ast.Attribute) if (read := ast.unparse(node)).isascii()}
        for package in {name for name in imported if name.partition(".")[0] not in sys.stdlib_module_names | SLOW}:
            if package not in OURS and "." not in package:
                submodules = [name for name in imported if name.startswith(f"{package}.")]
                for name in sorted(names):
                    head, _, rest = name.partition(".")
                    if head == package and name.replace(".", "").isidentifier():
                        found[package].append((str(path.relative_to(REPOSITORY)), submodules, rest))
    return found


@pytest.mark.slow
def test_what_is_read_from_a_package_is_there_in_a_new_process() -> None:
    content = reads()
    assert {"huggingface_hub", "sentencepiece"} <= content.keys()
    command = [sys.executable, "-c", CHECK]
    found = subprocess.run(command, input=json.dumps(content), capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr


def test_predicting_does_not_wait_for_deepspeed() -> None:
    code = "import sys, pipeline.finetuning.predictor, pipeline.predict; sys.exit('deepspeed' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=False).returncode == 0


@pytest.mark.slow
def test_mypy_finds_no_mistake() -> None:
    """It is a test so that it takes one of the processes of `make test` and not all of its time."""
    cache = Path(sys.prefix) / "mypy_cache"  # as in the Makefile
    words = [sys.executable, "-m", "mypy", "--cache-dir", str(cache)]
    done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
