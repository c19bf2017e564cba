"""Only pipeline/engine uses DeepSpeed and the insides of its engine."""

import ast
from collections.abc import Iterator
from pathlib import Path

INSIDES = frozenset(
    {
        *("basic_optimizer", "global_samples", "micro_steps", "seq_data_parallel_group", "zero_optimization_stage"),
        *("fp16_enabled", "gradient_clipping", "gradient_accumulation_steps", "clip_fp32_gradients"),
        *("fp16_groups", "bf16_groups", "bit16_groups", "fp32_groups", "fp32_partitioned_groups_flat"),
        *("single_partition_of_fp32_groups", "fp32_groups_flat_partition", "sub_group_to_group_id", "grad_position"),
        *("loss_scaler", "cur_scale", "ds_numel", "ds_shape", "ds_tensor", "_hp_mapping", "update_lp_params"),
    }
)
"""Attributes of DeepSpeed's engine, optimizers and parameters."""


def uses_of_deepspeed(source: str) -> Iterator[str]:
    """Each import of DeepSpeed, and each access to one of `INSIDES` or to a private attribute of an engine."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (f"import {alias.name}" for alias in node.names if alias.name.split(".")[0] == "deepspeed")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "deepspeed":
            yield f"from {node.module} import"
        elif isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value)
            private = node.attr.startswith("_") and (owner == "engine" or owner.endswith(".engine"))
            if node.attr in INSIDES or private:
                yield f"{owner}.{node.attr}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "setattr"):
            names = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
            yield from (f"{node.func.id}(..., {name!r})" for name in names if name in INSIDES)


def test_deepspeed_is_used_in_the_engine_package_only() -> None:
    modules = [path for folder in ("common", "data_prep", "model", "pipeline") for path in Path(folder).rglob("*.py")]
    assert len(modules) > 100
    found = {path: list(uses_of_deepspeed(path.read_text(encoding="utf-8"))) for path in modules}
    engine = Path("pipeline", "engine")
    assert {path: uses for path, uses in found.items() if uses and engine not in path.parents} == {}


def test_each_kind_of_use_is_found() -> None:
    source = """
import deepspeed.comm
from deepspeed import comm
self.engine._config
engine.basic_optimizer.state
getattr(tensor, "ds_numel", 0)
engine.step()
"""
    assert sorted(uses_of_deepspeed(source)) == [
        "engine.basic_optimizer",
        "from deepspeed import",
        "getattr(..., 'ds_numel')",
        "import deepspeed.comm",
        "self.engine._config",
    ]
