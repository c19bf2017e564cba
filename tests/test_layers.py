"""The direction of imports between packages: entry points at the top, common/ at the bottom, no circles.

A package is a top-level package or one folder below it; what lies deeper counts as part of that folder. Every import
counts, also one inside a function or for type checking only.
"""

import ast
import graphlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
TOP_LEVEL = ("common", "data_prep", "model", "pipeline")
WHOLE = ("common", "model")
"""Packages whose folders count as part of them."""

ENTRY_POINTS = "the entry points of pipeline"
JOBS = "the command line of data_prep"

Layers = Sequence[Sequence[str]]
"""From the top down. A package may import its own layer and those below it."""

PIPELINE: Layers = (
    (ENTRY_POINTS,),
    ("pipeline.pretraining", "pipeline.finetuning"),
    ("pipeline.run",),
    ("pipeline.sharing",),
    ("pipeline.analysis",),
    ("pipeline.training",),
    ("pipeline.settings",),
    ("pipeline.tasks",),
    ("pipeline.checkpoint",),
    ("pipeline.engine", "pipeline.distributed", "pipeline.data"),
    ("model", "data_prep"),
    ("common",),
)
DATA_PREP: Layers = (
    (JOBS,),
    ("data_prep.jobs",),
    ("data_prep.sources", "data_prep.format", "data_prep.corpus"),
    ("data_prep.wikitext",),
    ("data_prep.mpi", "data_prep.text"),
    ("common",),
)

Imports = dict[str, set[str]]
"""For each module, with dots, the modules of this project that it imports."""


def imports_of(root: Path) -> Imports:
    """The imports of every module under `root` in the packages of `TOP_LEVEL`."""
    modules = {}
    for top in TOP_LEVEL:
        for path in sorted((root / top).rglob("*.py")):
            name = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
            modules[name] = path
    return {name: set(_imported(path, modules)) for name, path in modules.items()}


def _imported(path: Path, modules: dict[str, Path]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import; name the package"
            # `from package import module` imports a module, `from module import name` the module itself.
            inside = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in modules else str(node.module) for name in inside]
        yield from (name for name in names if name.partition(".")[0] in TOP_LEVEL)


def package_of(module: str) -> str:
    """The package that a module counts as part of."""
    top, *rest = module.split(".")
    if top in WHOLE or not rest:
        return top
    has_folder = len(rest) > 1 or (REPOSITORY / top / rest[0]).is_dir()
    if has_folder:
        return f"{top}.{rest[0]}"
    return {"pipeline": ENTRY_POINTS, "data_prep": JOBS}[top]


def upward_imports(imports: Imports, layers: Layers) -> list[str]:
    """Imports against the direction of `layers`, as "module imports module".

    A package that `layers` does not name counts as the part of it that `layers` does name, such as data_prep for
    data_prep.text. Modules of other packages are left out.
    """
    level = {package: number for number, packages in enumerate(layers) for package in packages}

    def level_of(module: str) -> int | None:
        return level.get(package_of(module), level.get(module.partition(".")[0]))

    levels = [(one, other, level_of(one), level_of(other)) for one, other in _pairs(imports)]
    return [
        f"{one} imports {other}" for one, other, here, there in levels if None not in (here, there) and here > there
    ]


def foreign_imports(imports: Imports) -> list[str]:
    """Imports by data_prep, model or common of another package than common and themselves."""
    return [
        f"{module} imports {other}"
        for module, other in _pairs(imports)
        if not module.startswith("pipeline") and other.partition(".")[0] not in (module.partition(".")[0], "common")
    ]


def imports_of_entry_points(imports: Imports) -> list[str]:
    """Imports of an entry point of pipeline/ by any module."""
    return [f"{module} imports {other}" for module, other in _pairs(imports) if package_of(other) == ENTRY_POINTS]


def _pairs(imports: Imports) -> Iterator[tuple[str, str]]:
    for module, imported in imports.items():
        yield from ((module, other) for other in sorted(imported))


def circle(imports: Imports) -> list[str]:
    """One circle of packages that import each other, each before the one that imports it; empty if there is none."""
    graph: dict[str, set[str]] = {}
    for module, imported in imports.items():
        package = package_of(module)
        graph.setdefault(package, set()).update({package_of(other) for other in imported} - {package})
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def findings(imports: Imports) -> list[list[str]]:
    """What is wrong: upwards in pipeline/ and in data_prep/, between packages, of entry points, and in a circle."""
    return [
        upward_imports(imports, PIPELINE),
        upward_imports(imports, DATA_PREP),
        foreign_imports(imports),
        imports_of_entry_points(imports),
        sorted(set(circle(imports))),
    ]


def test_imports_point_downwards() -> None:
    imports = imports_of(REPOSITORY)
    assert findings(imports) == [[], [], [], [], []]
    known = {package for layers in (PIPELINE, DATA_PREP) for packages in layers for package in packages}
    assert {package_of(module) for module in imports} - known - set(TOP_LEVEL) == set()


@pytest.mark.parametrize(
    ("module", "imported", "rules", "around"),
    [
        ("pipeline.training.training_run", "pipeline.engine.build", (), []),
        ("pipeline.data.collate", "pipeline.training.training_run", (0,), ["pipeline.data", "pipeline.training"]),
        ("pipeline.analysis.costs", "pipeline.plan", (0, 3), []),
        ("pipeline.export", "pipeline.pretrain", (3,), []),  # of one layer, but still an entry point
        ("data_prep.sources.books", "data_prep.jobs.extract", (1,), ["data_prep.jobs", "data_prep.sources"]),
        ("model.layers.heads", "data_prep.text.vocabulary", (2,), []),
        ("common.errors", "model.layers.heads", (0, 2), []),
    ],
)
def test_the_checker_finds_what_is_wrong(module: str, imported: str, rules: tuple[int, ...], around: list[str]) -> None:
    good = {
        "pipeline.pretrain": {"pipeline.training.trainer", "pipeline.checkpoint.files"},
        "pipeline.training.trainer": {"pipeline.data.collate"},
        "pipeline.data.collate": {"model.layers.heads", "data_prep.text.vocabulary"},
        "data_prep.jobs.extract": {"data_prep.sources.books"},
        "data_prep.sources.books": {"common.errors"},
    }
    told = [[f"{module} imports {imported}"] if number in rules else [] for number in range(4)]
    assert findings({**good, module: {*good.get(module, set()), imported}}) == [*told, around]


def test_imports_are_found_wherever_they_stand(tmp_path: Path) -> None:
    for top in TOP_LEVEL:
        (tmp_path / top).mkdir()
    (tmp_path / "pipeline" / "data").mkdir()
    (tmp_path / "pipeline" / "data" / "__init__.py").write_text("")
    (tmp_path / "pipeline" / "data" / "rng.py").write_text("import numpy\nimport common.errors as errors\n")
    (tmp_path / "common" / "errors.py").write_text("")
    code = """
from typing import TYPE_CHECKING
from pipeline.data import rng
if TYPE_CHECKING:
    from pipeline.data.rng import Purpose
def late():
    from common import errors
    from model.layers.heads import IGNORED_LABEL
"""
    (tmp_path / "pipeline" / "plan.py").write_text(code)
    assert imports_of(tmp_path) == {
        "common.errors": set(),
        "pipeline.data": set(),
        "pipeline.data.rng": {"common.errors"},
        "pipeline.plan": {"pipeline.data.rng", "common.errors", "model.layers.heads"},
    }
