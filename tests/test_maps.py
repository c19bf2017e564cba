"""The docstring of every package is its map: it names each module and each package inside."""

import ast
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGES = sorted(
    path.parent.relative_to(REPOSITORY).as_posix()
    for top in ("common", "data_prep", "model", "pipeline")
    for path in (REPOSITORY / top).rglob("__init__.py")
)


def missing_from_map(package: Path) -> set[str]:
    """The modules and packages inside `package` that the docstring of its `__init__` does not name."""
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8"))) or ""
    entries = [re.split(r"\s{2,}", line.strip())[0] for line in docstring.splitlines()[1:]]
    named = {name.strip().rstrip("/") for entry in entries for name in entry.split(",")}
    inside = {path.stem for path in package.glob("*.py")} - {"__init__", "__main__"}
    inside |= {path.parent.name for path in package.glob("*/__init__.py")}
    return inside - named


@pytest.mark.parametrize("package", PACKAGES)
def test_the_map_names_every_module(package: str) -> None:
    assert missing_from_map(REPOSITORY / package) == set()
