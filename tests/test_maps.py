"""The docstring of every package is its map: it names each module and each package inside."""

import ast
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGES = sorted(
    path.parent.relative_to(REPOSITORY).as_posix()
    for top in ("albert_pretraining", "common", "data_prep", "model", "pipeline")
    for path in (REPOSITORY / top).rglob("__init__.py")
)


@pytest.mark.parametrize("name", PACKAGES)
def test_the_map_names_every_module(name: str) -> None:
    package = REPOSITORY / name
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8"))) or ""
    entries = [re.split(r"\s{2,}", line.strip())[0] for line in docstring.splitlines()[1:]]
    named = {name.strip().rstrip("/") for entry in entries for name in entry.split(",")}
    inside = {path.stem for path in package.glob("*.py")} - {"__init__", "__main__"}
    inside |= {path.parent.name for path in package.glob("*/__init__.py")}
    assert inside - named == set()
