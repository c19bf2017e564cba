"""Shows how DeepSpeed behaves without each workaround, and with it."""

from collections import Counter
from typing import Any

import torch
from torch import nn

from pipeline.engine import workarounds, zero_layout
from tests.pipeline.workers import training
from tests.pipeline.workers.cases.lamb import claim_fp16
from tests.pipeline.workers.host_reads import counting_reads


def show_bugs() -> dict[str, Any]:
    """How DeepSpeed behaves without each workaround, and with it. Two ranks."""
    claim_fp16()
    found: dict[str, Any] = {}

    engine = training.make_engine(training.config(0, "bf16", 2), attach=False)
    found["first step"] = training.difference(training.full(engine), training.model_weights(engine))
    zero_layout.attach(engine)
    found["first step mended"] = training.difference(training.full(engine), training.model_weights(engine))
    training.close(engine)

    no_clip = {"gradient_clipping": 0.0}
    growing = {"fp16": {"loss_scale_window": 1, "initial_scale_power": 8}, **no_clip}
    for stage in (1, 2, 3):
        for with_workaround in (False, True):
            engine = training.make_engine(training.config(stage, "fp16", 2, **growing), attach=False)
            engine.basic_optimizer.attach(zero_layout.slices(engine), zero_layout.process_group(engine))
            if with_workaround:
                workarounds.grow_loss_scale_after_step(engine)
                workarounds.read_norm_once(engine)
            reads: Counter[str] = Counter()
            with counting_reads(reads):
                training.train(engine, 0, 3)  # the scale doubles in the third step
            found["overflow checks", stage, with_workaround] = sum(reads[name] for name in reads if "overflow" in name)
            found["doubling", stage, with_workaround] = training.full(engine, "exp_avg")
            training.close(engine)

    fixed = {"fp16": {"loss_scale": 256.0}, **no_clip}
    for stage in (0, 1):
        engine = training.make_engine(training.config(stage, "fp16", 2, **fixed))
        training.train(engine, 0, 1)
        found["fp16", stage] = training.full(engine, "exp_avg")
        training.close(engine)

    for with_workaround in (False, True):
        engine = training.make_engine(training.config(0, "fp32", 2), attach=False)
        weight = engine.module.layer.weight = nn.Parameter(torch.zeros(4_000_000))
        engine.module.embedding.weight.grad = torch.full((29, 7), 0.01)
        weight.grad = torch.full((4_000_000,), 0.01)
        if with_workaround:
            workarounds.clip_by_exact_norm(engine)
        engine.clip_fp32_gradients()
        engine.basic_optimizer.step()  # of which the hook comes first
        found["clipped", with_workaround] = weight.grad[0].item(), engine.get_global_grad_norm()
        training.close(engine)

    for stage, with_workaround in ((0, False), (0, True), (1, False)):
        engine = training.make_engine(training.config(stage, "fp32", 2, **no_clip), attach=False)
        engine.basic_optimizer.attach(zero_layout.slices(engine), zero_layout.process_group(engine))
        if with_workaround:
            workarounds.clip_by_exact_norm(engine)
        training.train(engine, 0, 2)
        found["norm without clipping", stage, with_workaround] = engine.get_global_grad_norm()
        training.close(engine)
    return found
