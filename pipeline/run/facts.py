"""What must be the same on all hosts of a job: the preflight compares it, and so does each start of several ranks."""

import contextlib
import hashlib
import os
import platform
import re
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("common", "data_prep", "model", "pipeline", "ds_configs", "requirements.txt")
"""Below ROOT, what decides what is computed."""
SUFFIXES = (".py", ".json", ".toml", ".txt", ".md")  # of the files that do
REMEDIES = {
    "code": "bring all hosts to the same commit, without changes",
    "Python": "make the environment with the same one",
    "packages": "pip install -r requirements.txt",
    "shards": "copy the shards again",
}
"""By kind of facts, what makes them the same on all hosts."""
Facts = Mapping[str, Mapping[str, str]]  # facts by kind and name


def facts_of_host(shards: Iterable[str | Path]) -> dict[str, dict[str, str]]:
    """The facts of this host, of the directories `shards` among others."""
    found = [path for place in SOURCES for path in (ROOT / place, *(ROOT / place).rglob("*"))]
    files = [path for path in found if path.suffix in SUFFIXES and path.is_file()]  # an editor's lock is a dead link
    return {
        "code": {str(path.relative_to(ROOT)): _digest(path.read_bytes()) for path in files},
        "Python": {"": platform.python_version()},
        "packages": _packages(),
        "shards": {str(directory): _digest_of_shards(Path(directory)) for directory in shards},
    }


def _packages() -> dict[str, str]:
    """The versions of the packages that the project needs; of all packages where it is installed as one itself."""
    path = ROOT / "requirements.txt"
    if not path.exists():
        return {str(package.name): package.version for package in metadata.distributions()}
    versions = {}
    for name in re.findall(r"^([\w.-]+)==", path.read_text(encoding="utf-8"), re.M):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def summary(facts: Facts) -> dict[str, str]:
    """One digest for each kind of facts."""
    return {f"the {kind}": _digest(repr(sorted(of_kind.items())).encode()) for kind, of_kind in facts.items()}


def differences(found: Facts, wanted: Facts) -> list[str]:
    """A line for each kind of facts in which a host differs, with the first differences and the remedy."""
    lines = []
    for kind, facts in wanted.items():
        names = sorted({*facts, *found[kind]})
        other = [name for name in names if found[kind].get(name) != facts.get(name)]
        shown = [f"{name} {found[kind].get(name, 'none')} ({facts.get(name, 'none')} here)" for name in other[:4]]
        if other:
            more = f" and {len(other) - 4} more" if len(other) > 4 else ""
            lines.append(f"other {kind}: {', '.join(shown).strip()}{more}; {REMEDIES[kind]}")
    return lines


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


def _digest_of_shards(directory: Path) -> str:
    """Of a shard set's manifest and the sizes of its files; "none" without a manifest."""
    if not (directory / "manifest.json").is_file():
        return "none"
    sizes = sorted((entry.name, entry.stat().st_size) for entry in os.scandir(directory) if entry.name[0] != ".")
    return _digest((directory / "manifest.json").read_bytes() + str(sizes).encode())
