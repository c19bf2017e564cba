"""Finds packages of other projects that hide ours: `model` and `common` are frequent names."""

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path


def require_siblings(package_file: str, names: Sequence[str]) -> None:
    """Checks that Python would import the packages `names` from the directory in which this package lies.

    A `model.py` in the current directory, or another installed `model`, would be imported instead of ours.

    Args:
        package_file: `__file__` of the package that needs them.
        names: top-level packages of this project.
    Raises:
        ImportError: another package hides one of them.
        SystemExit: the same, for a command started by `python -m`: it prints one line and has status 2.
    """
    home = Path(package_file).resolve().parent.parent
    for name in names:
        spec = find_spec(name)
        places = [] if spec is None else [spec.origin, *(spec.submodule_search_locations or [])]
        if not any(place is not None and home in Path(place).resolve().parents for place in places):
            _refuse(name, home, next(filter(None, places), None))


def _refuse(name: str, home: Path, hiding_file: str | None) -> None:
    """Reports that `name` is imported from the file `found` instead of from `home`."""
    if hiding_file is None:
        message = f"the package {name!r} is missing from {home}; install the project again"
    else:
        message = (
            f"the package {name!r} of {home} is hidden by {hiding_file}; rename that one, "
            "or start from another directory"
        )
    if sys.argv[0] == "-m":  # Python sets it so while it imports the package of `python -m package.module`
        print(f"error: {message}", file=sys.stderr)
        sys.exit(2)
    raise ImportError(message)
