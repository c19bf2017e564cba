"""The Dockerfile: what it copies is in its context, and the image that the pages name is the one that it says."""

import fnmatch
import re

from tests.docs.pages import REPOSITORY

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
