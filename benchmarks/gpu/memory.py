"""The memory of a training step of DeepSpeed's engine on one GPU, beside the plan's."""

import gc
from functools import partial
from typing import Any

import torch

from benchmarks.gpu.place import Place
from benchmarks.shared import measure as measuring
from benchmarks.shared.examples import draw, open_collator
from model import AlbertConfig, AlbertForPreTraining
from model.counts import parameter_counts
from pipeline.engine import config as engine_config
from pipeline.engine import ranks, step, workarounds
from pipeline.engine.build import initialise
from pipeline.engine.hardware import detect_hardware
from pipeline.planning.memory import MemorySettings, memory

ROWS = (4, 16, 64)
LENGTH = 512


def measure(place: Place, model: str) -> dict[str, Any]:
    """Bytes of a step with several micro-batches at ZeRO stage 1 in fp16, measured and planned.

    On a processor, which does not count its memory, those of the tensors that are kept for the backward pass.
    """
    ranks.become_single_rank()
    workarounds.init_distributed()
    collator = open_collator(place.shards(LENGTH))
    config = AlbertConfig.preset("albert-tiny" if place.tiny else model, vocab_size=500 if place.tiny else 30000)
    bucket = parameter_counts(config).total
    json: dict[str, Any] = {"train_batch_size": 1, "optimizer": {"type": "Lamb", "params": {"lr": 1e-3}}}
    json |= {"zero_optimization": {"stage": 1, "reduce_bucket_size": bucket, "allgather_bucket_size": bucket}}
    precision = "fp16" if place.on_gpu else "fp32"
    found = []
    row: dict[str, float | None]
    for rows in ROWS[:1] if place.tiny else ROWS:
        plan = memory(config, rows, collator.shape, MemorySettings(precision, 1, 1, bucket=bucket))
        gc.collect()
        net = AlbertForPreTraining(config)
        engine, _ = initialise(net, engine_config.fit(json, 1, detect_hardware(), precision))
        del net
        engine.train()
        inputs = draw(collator, 0, rows, engine.device).packed

        def loss(engine: Any = engine, inputs: Any = inputs) -> torch.Tensor:
            output = engine(**inputs)
            return output.mlm_loss_sum / output.mlm_count + output.sentence_loss_sum / output.sentence_count

        try:
            if place.on_gpu:
                for number in range(3):
                    if number == 1:  # the first step allocates what stays
                        torch.cuda.reset_peak_memory_stats()
                    engine.backward(loss())
                    step.step(engine)
                row = {"measured": torch.cuda.max_memory_allocated(), "planned": plan.total}
            else:
                kept = measuring.saved_bytes(engine.module, partial(loss, engine.module))
                row = {"measured": kept, "planned": plan.activations}
        except torch.OutOfMemoryError:
            row = {"measured": None, "planned": plan.total}
        found.append({"model": model, "precision": precision, "micro_batch": rows} | row)
        engine.destroy()
        del engine, loss
        if place.on_gpu:
            torch.cuda.empty_cache()
    return {"memory": found}
