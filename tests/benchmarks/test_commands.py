"""Every measurement can be started: its imports exist, and a mistake in its command is one line with status 2."""

import ast
import importlib
import importlib.metadata
from pathlib import Path

import pytest

import benchmarks

REPOSITORY = Path(benchmarks.__file__).parent.parent

MODULES = sorted(path.stem for path in Path(benchmarks.__file__).parent.glob("*.py") if path.stem != "__init__")
MODULES.append("shared.trainer_reference")


@pytest.mark.parametrize("name", MODULES)
def test_a_mistake_in_a_command_is_one_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert importlib.import_module(f"benchmarks.{name}").main(["--nothing"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: unknown argument --nothing; ")
    assert error.count("\n") == 1


def imported_at_start(module: str) -> set[str]:
    """The names of all modules that `module` imports when it is imported, also by other modules of this project."""
    found, left = set[str](), [module]
    while left:
        path = REPOSITORY / f"{left.pop().replace('.', '/')}.py"
        if not path.exists():  # a package, or a module of another project
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = [one.name for one in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            if isinstance(node, ast.ImportFrom):
                names = [str(node.module), *(f"{node.module}.{name}" for name in names)]
            left += set(names) - found
            found.update(names)
    return found


@pytest.mark.parametrize("module", ["benchmarks.study.__main__", "benchmarks.study.recipe_trials"])
def test_the_study_needs_no_package_of_developers(module: str) -> None:
    """`make study` installs requirements.txt only."""
    lines = (REPOSITORY / "requirements-dev.txt").read_text(encoding="utf-8").splitlines()
    developers = {line.partition("==")[0] for line in lines if "==" in line}
    imported = {name.partition(".")[0] for name in imported_at_start(module)}
    assert "torch" in imported, "the imports of benchmarks.shared.report were not found"
    distributions = importlib.metadata.packages_distributions()
    assert not {name for name in imported if developers & set(distributions.get(name, ()))}
