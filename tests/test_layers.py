"""The direction of imports between packages: entry points at the top, common/ at the bottom, no circles.

A package is a top-level package or one folder below it; what lies deeper counts as part of that folder. Every import
counts, also one inside a function or for type checking only.
"""

import ast
import graphlib
from collections.abc import Iterator, Sequence
from pathlib import Path

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
