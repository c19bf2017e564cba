"""The project as a wheel and as an editable installation: its commands work from any directory."""

import os
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from common import __version__
from tests.docs.pages import blocks_of

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[2]
WORK = ("pipeline.pretraining.pretrain_settings", "pipeline.finetuning.finetune_settings")
"""What entry points import late."""
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]


def run(*command, cwd, status=0):
    """Runs a command in a directory that is not the repository; its output, both streams in one."""
    environment = os.environ | {"DS_ACCELERATOR": "cpu", "PYTHONPATH": ""}
    result = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=environment,
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
def wheel(source, tmp_path_factory):
    out = tmp_path_factory.mktemp("wheel")
    run(*PIP, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", out, source, cwd=out)
    (wheel,) = out.glob("*.whl")
    assert wheel.name == f"albert_pretraining-{__version__}-py3-none-any.whl"
    return wheel


def make_environment(directory, package, *options):
    """An environment with the packages of this one and `package`; its directory of programs."""
    run(sys.executable, "-m", "venv", "--without-pip", directory, cwd=directory.parent)
    (packages,) = directory.glob("lib/python*/site-packages")
    (packages / "this-environment.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    python = directory / "bin" / "python"
    options = ("--no-deps", "--no-build-isolation", *options)
    run(*PIP, "--python", python, "install", *options, package, cwd=directory.parent)
    return directory / "bin"


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The programs of an environment with the wheel, and a directory whose modules have the names of ours."""
    place = tmp_path_factory.mktemp("installed")
    own = place / "own"
    for name in ("model.py", "common/__init__.py", "data_prep/__init__.py", "pipeline/__init__.py"):
        (own / name).parent.mkdir(parents=True, exist_ok=True)
        (own / name).write_text("raise SystemExit('a module of the user')\n", encoding="utf-8")
    return make_environment(place / "environment", wheel), own


def test_the_wheel_holds_one_package_with_the_code_and_presets(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        (top_level,) = (name for name in archive.namelist() if name.endswith("top_level.txt"))
        assert archive.read(top_level).split() == [b"albert_pretraining"]
    folders = ("common", "data_prep", "model", "pipeline", "ds_configs")
    files = [path for folder in folders for path in (REPOSITORY / folder).rglob("*.*")]
    files = [path.relative_to(REPOSITORY) for path in files if path.suffix in (".py", ".toml", ".md", ".json")]
    wanted = {f"albert_pretraining/{path}" for path in files}
    own = {f"albert_pretraining/{path.name}" for path in (REPOSITORY / "albert_pretraining").glob("*.py")}
    assert names == wanted | own


def test_a_wheel_works_beside_modules_of_the_same_names(installed):
    programs, own = installed
    entries = [path.stem for path in (REPOSITORY / "pipeline").glob("*.py") if not path.name.startswith("_")]
    listed = run(programs / "albert", cwd=own)
    assert {*entries, "data"} <= set(re.findall(r"\w+", listed))
    name = "albert_pretraining"
    imports = "; ".join(f"import {name}.{module}" for module in (*(f"pipeline.{entry}" for entry in entries), *WORK))
    script = f"{imports}; import sys; print({{'common', 'data_prep', 'model', 'pipeline'}} & set(sys.modules))"
    assert run(programs / "python", "-c", script, cwd=own) == "set()\n"
    # The presets are found where there is no ds_configs/.
    plan = ("plan", "--model", "albert-base", "--deepspeed_config", "ds_configs/base.json", "--gpu", "h100")
    assert "albert-base" in run(programs / "albert", *plan, "--nodes", 1, "--gpus-per-node", 8, cwd=own)
    assert "see `albert predict --help`" in run(programs / "albert", "predict", cwd=own, status=2)
    assert run(programs / "albert", "data", "--version", cwd=own).split()[-1] == __version__
    assert "did you mean pretrain?" in run(programs / "albert", "pretrian", cwd=own, status=2)


@pytest.mark.parametrize("line", ["import model.config", "import os, pipeline", "from pipeline import(plan)"])
def test_an_import_that_setup_py_does_not_rename_is_refused(tmp_path, line):
    setup = runpy.run_path(str(REPOSITORY / "setup.py"), run_name="setup_of_the_test")
    module = tmp_path / "module.py"
    module.write_text(setup["rename"](line), encoding="utf-8")
    with pytest.raises(ValueError, match=r"module\.py, line 1: setup\.py does not rename this import"):
        setup["check_imports"](module)


CHECKS = """
assert vectors.shape == (2, 128)
assert found["prediction"] in ("good", "bad")
again, = albert.load("runs/reviews").predict([{"text": "It was awful."}])
assert abs(again["probabilities"]["good"] - found["probabilities"]["good"]) < 1e-3, again
assert loss.item() > 0
try:
    albert.load("runs/nothing")
except albert.UserError as error:
    assert "no such directory" in str(error) or "is not a directory" in str(error), error
import sys
assert not {"common", "data_prep", "model", "pipeline"} & set(sys.modules)
"""
"""What follows the code of docs/python.md."""


def test_the_code_of_the_python_page_works_in_a_wheel(installed):
    programs, own = installed
    (own / "text").mkdir()
    for number in range(8):
        sentences = "\n\n".join(f"The {n} dogs of house {number} met {n * number} cats on a road." for n in range(80))
        (own / "text" / f"{number}.txt").write_text(sentences, encoding="utf-8")
    (own / "reviews").mkdir()
    for split in ("train", "dev"):
        rows = "a lovely dog,good\nan awful road,bad\n" * 10
        (own / "reviews" / f"{split}.csv").write_text(f"text,label\n{rows}", encoding="utf-8")
    for words in (
        "data extract --source books --input text --out documents",
        "data vocab --documents documents --out v.model --size 60",
        "data shards --documents documents --vocab v.model --out data/shards/train --max-seq-length 64",
        "pretrain --model albert-tiny --data data/shards/train --deepspeed_config ds_configs/demo.json --steps 2 "
        "--output runs/base",
        "finetune --task classification --init runs/base --data reviews --epochs 1 --output runs/reviews",
    ):
        printed = run(programs / "albert", *words.split(), cwd=own)
    assert "runs/reviews/export holds the model" in printed
    page = REPOSITORY / "docs" / "python.md"
    code = "\n".join("\n".join(block.lines) for block in blocks_of(page) if block.language == "python")
    assert "hidden_size=768" in code
    code = code.replace("hidden_size=768", "hidden_size=24, embedding_size=8, intermediate_size=24")
    (own / "page.py").write_text(code + CHECKS, encoding="utf-8")
    run(programs / "python", "page.py", cwd=own)


def test_an_editable_installation_is_the_checkout(source, tmp_path):
    python = make_environment(tmp_path / "environment", source, "--editable") / "python"
    where = run(python, "-c", "import pipeline, common; print(pipeline.__file__, common.__file__)", cwd=tmp_path)
    assert where.split() == [str(source / "pipeline" / "__init__.py"), str(source / "common" / "__init__.py")]
    assert run(python, "-m", "data_prep", "--version", cwd=tmp_path).split()[-1] == __version__
    assert "predict" in run(python.with_name("albert"), cwd=tmp_path)
