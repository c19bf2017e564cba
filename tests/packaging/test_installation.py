"""The project as a wheel and as an editable installation: its commands work from any directory."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from common import __version__
from tests.conftest import HIDDEN

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[2]
WORK = ("pipeline.pretraining.command", "pipeline.pretraining.replay", "pipeline.finetuning.command")
"""What entry points import late."""
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]


def run(*command, cwd, status=0, **environment):
    """Runs a command in a directory that is not the repository; its output, both streams in one."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if "PYTHONPATH" in environment:
        environment["PYTHONPATH"] += os.pathsep + HIDDEN
    result = subprocess.run(
        [str(part) for part in command], cwd=cwd, env={**inherited, "DS_ACCELERATOR": "cpu", **environment},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=1500, check=False,
    )  # fmt: skip
    assert result.returncode == status, result.stdout
    return result.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A copy of what git tracks or would track: building leaves nothing in the repository."""
    copy = tmp_path_factory.mktemp("source") / "project"
    copy.mkdir()
    names = run("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=REPOSITORY).splitlines()
    for name in names:
        if (REPOSITORY / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(REPOSITORY / name, copy / name)
    return copy


@pytest.fixture(scope="module")
def site(source, tmp_path_factory):
    """The wheel, unpacked as an installation has it."""
    out = tmp_path_factory.mktemp("wheel")
    run(*PIP, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", out, source, cwd=out)
    (wheel,) = out.glob("*.whl")
    assert wheel.name == f"albert_pretraining-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(out / "site")
    return out / "site"


def test_the_wheel_holds_the_packages_and_presets_and_nothing_else(site):
    names = {path.name for path in site.iterdir() if not path.name.endswith(".dist-info")}
    assert names == {"common", "data_prep", "model", "pipeline", "ds_configs"}
    for package in ("common", "data_prep", "model", "pipeline"):
        for kind in ("*.py", "*.toml", "*.md"):
            wanted = {path.relative_to(REPOSITORY) for path in (REPOSITORY / package).rglob(kind)}
            assert {path.relative_to(site) for path in (site / package).rglob(kind)} == wanted
    assert {path.name for path in (site / "ds_configs").iterdir()} == {
        path.name for path in (REPOSITORY / "ds_configs").iterdir()
    }


def test_commands_of_the_wheel_work_from_any_directory(site, tmp_path):
    python = (sys.executable, "-m")
    listed = run(*python, "pipeline", cwd=tmp_path, PYTHONPATH=str(site))
    entries = [path.stem for path in (REPOSITORY / "pipeline").glob("*.py") if not path.name.startswith("_")]
    assert set(entries) <= set(re.findall(r"\w+", listed))
    modules = (*(f"pipeline.{name}" for name in entries), *WORK)
    imports = "; ".join(f"import {module}" for module in modules)
    assert run(sys.executable, "-c", imports, cwd=tmp_path, PYTHONPATH=str(site)) == ""
    # The presets are found where there is no ds_configs/.
    plan = ("pipeline.plan", "--model", "albert-base", "--deepspeed_config", "ds_configs/base.json", "--gpu", "h100")
    assert "albert-base" in run(*python, *plan, "--nodes", 1, "--gpus-per-node", 8, cwd=tmp_path, PYTHONPATH=str(site))


def test_an_editable_installation_is_the_checkout(source, tmp_path):
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "environment", cwd=tmp_path)
    (packages,) = (tmp_path / "environment").glob("lib/python*/site-packages")
    (packages / "this-environment.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    python = tmp_path / "environment" / "bin" / "python"
    run(*PIP, "--python", python, "install", "--no-deps", "--no-build-isolation", "--editable", source, cwd=tmp_path)
    where = run(python, "-c", "import pipeline, common; print(pipeline.__file__, common.__file__)", cwd=tmp_path)
    assert where.split() == [str(source / "pipeline" / "__init__.py"), str(source / "common" / "__init__.py")]
    assert run(python, "-m", "data_prep", "--version", cwd=tmp_path).split()[-1] == __version__
