"""What a real engine holds in memory, by kind, on one of several ranks."""

import gc
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from model import AlbertConfig, AlbertForPreTraining, ExecutionOptions
from pipeline.engine import zero_layout
from pipeline.engine.lamb import Lamb
from pipeline.engine.optimizers import parameter_groups

BUCKET = 200_000


@dataclass(frozen=True)
class Case:
    """A model, how it is trained, and rows of S positions with M predictions."""

    preset: str
    stage: int
    precision: str
    rows: int = 2
    length: int = 160
    checkpointing: str = "none"
    dropout: float = 0.0
    accumulation: int = 2
    accumulates: str | None = None

    @property
    def predictions(self) -> int:
        return self.length // 8

    @property
    def config(self) -> AlbertConfig:
        return AlbertConfig.preset(
            self.preset,
            max_position_embeddings=self.length,
            hidden_dropout_prob=self.dropout,
            attention_probs_dropout_prob=0.0,
        )


def batch(case: Case) -> dict[str, Tensor]:
    """Rows of one pair each, without padding."""
    generator = torch.Generator().manual_seed(0)
    shape, chosen = (case.rows, case.length), (case.rows, case.predictions)
    return {
        "input_ids": torch.randint(5, 30000, shape, generator=generator),
        "token_type_ids": torch.zeros(shape, dtype=torch.int64),
        "position_ids": torch.arange(case.length).repeat(case.rows, 1),
        "sequence_ids": torch.zeros(shape, dtype=torch.int64),
        "masked_positions": torch.arange(case.predictions).repeat(case.rows, 1),
        "masked_labels": torch.randint(5, 30000, chosen, generator=generator),
        "cls_positions": torch.zeros(case.rows, 1, dtype=torch.int64),
        "sentence_labels": torch.ones(case.rows, 1, dtype=torch.int64),
    }


def settings(case: Case) -> dict[str, Any]:
    json: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": case.rows,
        "gradient_accumulation_steps": case.accumulation,
        "gradient_clipping": 1.0,
        "steps_per_print": None,
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {
            "stage": case.stage,
            "reduce_bucket_size": BUCKET,
            "allgather_bucket_size": BUCKET,
            "stage3_param_persistence_threshold": 0,
        },
    }
    if case.accumulates is not None:
        json["data_types"] = {"grad_accum_dtype": case.accumulates}
    return json | ({} if case.precision == "fp32" else {case.precision: {"enabled": True}})


def total(tensors: Iterable[Tensor | None]) -> int:
    """Bytes of the distinct storages behind `tensors`."""
    storages = {}
    for tensor in tensors:
        if tensor is not None and tensor.numel():
            storage = tensor.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


def flat(nested: Any) -> list[Tensor]:
    """The tensors in lists and dictionaries of lists and dictionaries."""
    if torch.is_tensor(nested):
        return [nested]
    values = nested.values() if isinstance(nested, dict) else nested if isinstance(nested, list | tuple) else []
    return [tensor for value in values for tensor in flat(value)]


def weights(engine: Any) -> int:
    parameters = list(engine.module.parameters())
    return total([parameter.data for parameter in parameters] + [getattr(p, "ds_tensor", None) for p in parameters])


def gradients(engine: Any) -> int:
    held = [parameter.grad for parameter in engine.module.parameters()]
    held += [getattr(parameter, "grad_accum", None) for parameter in engine.module.parameters()]
    for name in (
        "averaged_gradients",
        "all_grad_tensors",
        "grads_in_partition",
        "grad_partitions_flat_buffer",
        "fp32_groups_gradients_flat",
    ):
        held += flat(getattr(engine.optimizer, name, None))
    return total(held)


def watch_buckets(engine: Any) -> list[int]:
    """A list that gets the bytes of the reduce buckets whenever there are new ones."""
    optimizer, seen = engine.optimizer, [0]
    buckets = getattr(optimizer, "ipg_buckets", {})
    if (make := getattr(optimizer, "setup_buckets", None)) is None:
        return [total(flat([bucket.buffer for bucket in buckets.values()]))]

    def make_and_look() -> None:
        make()
        seen.append(total(flat([bucket.buffer for bucket in buckets.values()])))

    optimizer.setup_buckets = make_and_look
    return seen


def optimizer(engine: Any) -> int:
    """Of the fp32 weights, those that are not the model's own."""
    own = {parameter.data.untyped_storage().data_ptr() for parameter in engine.module.parameters()}
    flats = {id(here.flat): here.flat for here in zero_layout.slices(engine)}
    held = [flat for flat in flats.values() if flat.untyped_storage().data_ptr() not in own]
    return total(held + flat(list(engine.basic_optimizer.state.values())))


def measure(case: Case) -> dict[str, float]:
    """Bytes by kind, each when most of it is held; stage 3 gathers as it will from its second step on."""
    import deepspeed

    torch.manual_seed(0)
    model = AlbertForPreTraining(case.config, ExecutionOptions(case.checkpointing, chunked_loss=True))
    engine, *_ = deepspeed.initialize(model=model, optimizer=Lamb(parameter_groups(model)), config=settings(case))
    zero_layout.attach(engine)
    inputs = batch(case)
    buckets = watch_buckets(engine)
    found = dict.fromkeys(("weights", "gradients", "optimizer", "activations", "buckets"), 0.0)
    for _ in range(2 if case.stage == 3 else 1):
        for _ in range(case.accumulation):
            kept: list[Tensor] = []

            def keep(tensor: Tensor, kept: list[Tensor] = kept) -> Tensor:
                own = {parameter.data.untyped_storage().data_ptr() for parameter in engine.module.parameters()}
                if tensor.untyped_storage().data_ptr() not in own:
                    kept.append(tensor)
                return tensor

            hooks = []
            # What goes into a checkpointed block is held by the checkpoint, past these hooks.
            for block in engine.module.albert.encoder.attention:
                hooks.append(
                    block.query_key_value.register_forward_hook(lambda _, __, made, kept=kept: kept.append(made.weight))
                )
            with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
                output = engine(**inputs)
            for hook in hooks:
                hook.remove()
            found["activations"] = total(kept)
            found["weights"] = max(found["weights"], weights(engine))
            kept.clear()
            engine.backward((output.mlm_loss_sum + output.sentence_loss_sum) / 100)
            found["gradients"] = max(found["gradients"], gradients(engine))
            engine.step()
    found["buckets"] = max(buckets)
    found["optimizer"] = optimizer(engine)
    engine.destroy()
    gc.collect()
    return found


def measure_all(cases: list[Case]) -> dict[Case, dict[str, float]]:
    """Every case, one after the other in the same processes."""
    return {case: most_of_all_ranks(measure(case)) for case in cases}


def most_of_all_ranks(found: dict[str, float]) -> dict[str, float]:
    most = torch.tensor(list(found.values()), dtype=torch.float64)
    torch.distributed.all_reduce(most, torch.distributed.ReduceOp.MAX)
    return dict(zip(found, most.tolist()))
