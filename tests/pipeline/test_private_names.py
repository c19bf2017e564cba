"""Private names of torch and DeepSpeed stand in few files, and go when there is a public way."""

import ast
from pathlib import Path

import torch
import torch.distributed as dist

from tests.pipeline.conftest import REPOSITORY

PACKAGES = ("settings", "run", "distributed", "training", "engine", "checkpoint")
ALLOWED = {
    "distributed/progress.py": {"_world", "_get_sequence_number_for_group", "torch._dynamo.callback"},
    "engine/hardware.py": {"_is_mkldnn_bf16_supported"},
    "engine/zero_layout.py": {
        "_hp_mapping", "_partition_all_parameters", "_reassign_or_swap_out_partitioned_parameters",
    },
    "engine/workarounds.py": {"_config", "_global_grad_norm", "_update_scale"},
}  # fmt: skip
OWN = ("self", "cls", "os")


def private_names(path: Path) -> set[str]:
    """Attributes of others, and modules, that begin with an underscore. torch has no other loops over tensors."""
    found = set[str]()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and ast.unparse(node.value) not in OWN:
            found |= {node.attr} - {"_asdict", "_fields", "_make"}
        if isinstance(node, ast.ImportFrom) and "._" in (node.module or ""):
            found.add(node.module or "")
    return {name for name in found if not name.startswith(("__", "_foreach"))}


def test_private_names_stand_in_few_files() -> None:
    paths = [path for package in PACKAGES for path in (REPOSITORY / "pipeline" / package).glob("*.py")]
    found = {path.relative_to(REPOSITORY / "pipeline").as_posix(): private_names(path) for path in paths}
    assert {name: names for name, names in found.items() if names} == ALLOWED


def test_torch_has_no_public_way_yet() -> None:
    """Where one of these is there, use it in pipeline/distributed/progress.py or pipeline/engine/hardware.py."""
    assert not hasattr(dist.ProcessGroup, "get_sequence_number_for_group")
    assert not hasattr(torch.compiler, "on_compile_start")
    assert not hasattr(torch.cpu, "is_bf16_supported")
