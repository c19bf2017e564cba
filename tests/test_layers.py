"""The direction of imports between packages: entry points at the top, common/ at the bottom, no circles.

A package is a top-level package or one folder below it; what lies deeper counts as part of that folder. So is a module
that has a layer of its own. Every import counts, also one inside a function or for type checking only.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

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
