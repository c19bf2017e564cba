"""Builds the wheel: the packages of the checkout inside one package, `albert_pretraining`.

A checkout has common/, data_prep/, model/ and pipeline/ at its top, and its code imports them by these names. In
site-packages, a user's own `model.py` would hide such a package, or be hidden by it. So the wheel has them inside
`albert_pretraining`. `rename` changes their names in every import, and in every command that a text names. An editable
installation is the checkout itself, under its own names.
"""

import ast
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

PACKAGE = "albert_pretraining"
INNER = ("common", "data_prep", "ds_configs", "model", "pipeline")
_ONE = f"(?:{'|'.join(INNER)})"

RULES = (
    (rf"^(\s*)from ({_ONE}(?:\.\w+)*) import ", rf"\1from {PACKAGE}.\2 import "),
    (rf"^(\s*)import ({_ONE})$", rf"\1from {PACKAGE} import \2"),
    # The commands in docstrings, --help and errors are those that an installation has.
    (r"\bpython -m data_prep\b", "albert data"),
    (r"\bpython -m pipeline\.(\w+)", r"albert \1"),
    (r"\bpython -m pipeline\b(?!\.)", "albert"),
    (r"(--module|-m) ((?:data_prep|pipeline)\b)", rf"\1 {PACKAGE}.\2"),
)
"""Patterns, and what replaces them."""


def rename(text: str) -> str:
    """A text of a package as the wheel has it."""
    for pattern, replacement in RULES:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    return text


def check_imports(path: Path) -> None:
    """Raises ValueError if a module of the wheel imports a package by its name in the checkout."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
        if wrong := [name for name in names if name.partition(".")[0] in INNER]:
            raise ValueError(f"{path}, line {node.lineno}: setup.py does not rename this import of {wrong[0]}")


class BuildPackage(build_py):
    """Copies the packages as setuptools does, then moves them into `PACKAGE`."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        library = Path(self.build_lib)
        for name in INNER:
            target = library / PACKAGE / name
            shutil.rmtree(target, ignore_errors=True)  # of an earlier build
            (library / name).rename(target)
        for path in (library / PACKAGE).rglob("*"):
            if path.suffix in (".py", ".md", ".toml"):
                path.write_text(rename(path.read_text(encoding="utf-8")), encoding="utf-8")
            if path.suffix == ".py":
                check_imports(path)


class OnePackage(Distribution):
    """A distribution whose metadata name `PACKAGE` alone as what it installs."""

    def iter_distribution_names(self) -> Iterator[str]:
        yield PACKAGE


if __name__ == "__main__":
    setup(cmdclass={"build_py": BuildPackage}, distclass=OnePackage)
