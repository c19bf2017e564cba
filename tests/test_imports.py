"""A package that is imported as a whole offers what is read from it: many packages load their modules when asked."""

import ast
import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
OURS = ("common", "data_prep", "model", "pipeline", "albert_pretraining")
SLOW = {"torch", "deepspeed", "transformers"}
"""They take seconds to import, and every test process reads from them."""

CHECK = """
import functools, importlib, json, os, sys
packages = json.load(sys.stdin)
for package, reads in packages.items():
    if os.fork():
        if os.wait()[1]:
            sys.exit(1)
        continue
    module = importlib.import_module(package)
    for file, imports, name in reads:  # each in a process that has read nothing else
        if os.fork():
            if os.wait()[1]:
                sys.exit(f"{file} reads {package}.{name}")
            continue
        for submodule in imports:
            importlib.import_module(submodule)
        functools.reduce(getattr, name.split("."), module)
        os._exit(0)
    os._exit(0)
"""


def reads() -> dict[str, list[tuple[str, list[str], str]]]:
    """By package: the file that imports it as a whole, the modules of it that the file imports, and a name it reads."""
    found = defaultdict(list)
    for path in (file for package in OURS for file in sorted((REPOSITORY / package).rglob("*.py"))):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        imported = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
        imported += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
        names = {read for node in nodes if isinstance(node, ast.Attribute) if (read := ast.unparse(node)).isascii()}
        for package in {name for name in imported if name.partition(".")[0] not in sys.stdlib_module_names | SLOW}:
            if package not in OURS and "." not in package:
                submodules = [name for name in imported if name.startswith(f"{package}.")]
                for name in sorted(names):
                    head, _, rest = name.partition(".")
                    if head == package and name.replace(".", "").isidentifier():
                        found[package].append((str(path.relative_to(REPOSITORY)), submodules, rest))
    return found


@pytest.mark.slow
def test_what_is_read_from_a_package_is_there_in_a_new_process() -> None:
    content = reads()
    assert {"huggingface_hub", "sentencepiece"} <= content.keys()
    command = [sys.executable, "-c", CHECK]
    found = subprocess.run(command, input=json.dumps(content), capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr


def test_predicting_does_not_wait_for_deepspeed() -> None:
    code = "import sys, pipeline.finetuning.predictor, pipeline.predict; sys.exit('deepspeed' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=False).returncode == 0
