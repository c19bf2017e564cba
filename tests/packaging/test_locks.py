"""The locks have every pinned package with hashes; the Dockerfile copies what is there, the pages name its image."""

import fnmatch
import re
import tomllib

import pytest
from packaging.requirements import Requirement

from tests.docs.pages import REPOSITORY

PIN = re.compile(r"^([A-Za-z0-9_.-]+)==([^\s;\\]+)", re.MULTILINE)


def normal(name: str) -> str:
    """The form of a name in which pip compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(*files: str) -> dict[str, set[str]]:
    """The versions that files pin, by package. A lock may have two for two versions of Python."""
    found: dict[str, set[str]] = {}
    for file in files:
        for name, version in PIN.findall((REPOSITORY / file).read_text(encoding="utf-8")):
            found.setdefault(normal(name), set()).add(version)
    return found


BASE = ("requirements.lock", "requirements-cuda.lock")


def test_what_the_gpu_benchmarks_need_is_pinned_as_for_developers() -> None:
    assert pins("requirements-gpu.txt").items() <= pins("requirements-dev.txt").items()


@pytest.mark.parametrize(
    ("requirements", "locks"),
    [("requirements.txt", BASE), ("requirements-dev.txt", (*BASE, "requirements-dev.lock"))],
)
def test_every_pin_is_locked(requirements: str, locks: tuple[str, ...]) -> None:
    locked = pins(*locks)
    assert {name: versions for name, versions in pins(requirements).items() if not versions <= locked[name]} == {}


def test_the_ranges_of_the_wheel_hold_every_pin_and_nothing_else() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    ranges = {normal(one.name): one for one in map(Requirement, project["dependencies"])}
    pinned = pins("requirements.txt")
    assert set(ranges) == set(pinned)
    for name, one in ranges.items():
        (version,) = pinned[name]
        assert one.specifier.contains(version), one


def test_deepspeed_is_one_that_was_tried() -> None:
    from pipeline.engine.zero_layout import TRIED

    assert pins("requirements.txt")["deepspeed"] == {TRIED[-1]}
    assert f'"deepspeed>={TRIED[0]},<0.20"' in (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    page = (REPOSITORY / "docs" / "training.md").read_text(encoding="utf-8")
    assert f"Versions before {TRIED[0]} are refused" in page


def test_both_builds_of_torch_have_one_version() -> None:
    (on_pypi,), (without_cuda,) = pins("requirements-cuda.lock")["torch"], pins("requirements-cpu.lock")["torch"]
    assert without_cuda == f"{on_pypi}+cpu"
    assert "torch" not in pins("requirements.lock")


LINES = (REPOSITORY / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()


def is_in_context(path: str) -> bool:
    """Whether .dockerignore, whose last matching line decides, lets `path` into the image."""
    kept = True
    for line in (REPOSITORY / ".dockerignore").read_text(encoding="utf-8").splitlines():
        pattern = line.removeprefix("!").removeprefix("**/")
        if line and not line.startswith("#") and (fnmatch.fnmatch(path, pattern) or path.startswith(f"{pattern}/")):
            kept = line.startswith("!")
    return kept


def test_what_is_copied_is_there_and_the_rest_stays_out() -> None:
    copied = [word for line in LINES if line.startswith("COPY ") for word in line.split()[1:-1] if word[0] not in "-/"]
    assert "requirements-cuda.lock" in copied
    for name in copied:
        assert name == "." or ((REPOSITORY / name).is_file() and is_in_context(name)), name
    for name in ("common/text.py", "data_prep", "ds_configs/base.json", "model", "pipeline/pretrain.py"):
        assert is_in_context(name), name
    for name in (".git", "tests/conftest.py", "runs", ".venv", "benchmarks/results"):
        assert not is_in_context(name), name


def test_the_manifest_names_the_image() -> None:
    manifest = (REPOSITORY / "docs" / "kubernetes.yaml").read_text(encoding="utf-8")
    (name,) = re.findall(r"image: (\S+)", manifest)
    assert f"--tag {name} ." in "\n".join(LINES)
