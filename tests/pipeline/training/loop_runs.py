"""The runs whose results test_loop.py compares."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model.distillation import PARTS

BATCH, STEPS, PEAK, LOGGED = 12, 10, 0.02, 5
ALL_PARTS = tuple(f"{name}=1" for name in PARTS)
MODEL = ("num_hidden_layers=2", "hidden_size=32", "num_attention_heads=4", "intermediate_size=64", "embedding_size=16")


@dataclass(frozen=True)
class Run:
    """A run of 10 steps of 12 rows."""

    name: str  # of its directory
    world: int = 2
    micro: int = 3  # rows of a micro-batch, at most
    stage: int = 1
    settings: tuple[tuple[str, Any], ...] = ()  # of the DeepSpeed JSON, beside the usual ones
    flags: tuple[str, ...] = ()  # of the command line, likewise
    precision: str = "fp32"
    stopped_after: int | None = None  # a stop signal arrives after the checkpoint of this step; None for no signal
    goes_on: "Run | None" = None  # the stopped run that this one resumes; None for a new run
    batch: int = BATCH  # rows of a step
    distils: bool = False  # True for a run with a teacher and all parts of its loss
    later: bool = False  # True for a run that starts after all others of its number of ranks

    @property
    def directory(self) -> str:
        return self.name if self.goes_on is None else self.goes_on.directory

    def command(self, corpus: Any, folder: Path) -> list[str]:
        config = {
            "train_batch_size": self.batch,
            "train_micro_batch_size_per_gpu": self.micro,
            "optimizer": {"type": "Lamb", "params": {"lr": PEAK}},
            "zero_optimization": {"stage": self.stage, "reduce_bucket_size": 5000},
            **dict(self.settings),
        }
        path = folder / f"{self.name}.json"
        path.write_text(json.dumps(config))
        flags = {
            "--model": "albert-tiny", "--data": corpus.train, "--eval-data": corpus.held_out,
            "--deepspeed_config": path, "--output": folder / self.directory, "--precision": self.precision,
            "--steps": STEPS, "--log-interval": LOGGED, "--eval-interval": STEPS, "--save-interval": 2,
        }  # fmt: skip
        taught = ["--teacher", str(folder / "teacher"), "--teacher-loss", *ALL_PARTS] if self.distils else []
        return [*(str(word) for flag in flags.items() for word in flag), "--model-args", *MODEL, *self.flags, *taught]


# Splits of 12 rows into ranks x micro-batch x accumulation, from single rows to none accumulated. Each has one
# of the ZeRO stages.
SPLITS = [
    Run("1 rank x 2", 1, 2, stage=1),
    Run("1 rank x 12", 1, 12, stage=2),
    Run("2 ranks x 1", 2, 1, stage=2),
    Run("2 ranks x 6", 2, 6, stage=0),
    Run("3 ranks x 4", 3, 4, stage=3),
]
# 12 rows on 5 ranks: three on a rank, in micro-steps of up to 2. The second is short or empty.
UNEVEN_SPLITS = [Run(f"5 ranks x 2 at stage {stage}", 5, 2, stage) for stage in (1, 3)]
# Fewer rows than ranks: two of the five ranks have none.
THREE_ROWS = Run("1 rank, 3 rows", 1, 3, batch=3)
FEW_ROWS = Run("5 ranks, 3 rows", 5, 1, stage=0, batch=3)
# 11 rows from 3 ranks to 2 and back.
ELEVEN_ROWS = Run("1 rank, 11 rows", 1, 11, batch=11)
OUT = Run("3 ranks, stopped", 3, 2, stage=2, batch=11, stopped_after=4)
AWAY = Run("then 2", 2, 4, stage=1, batch=11, goes_on=OUT, stopped_after=8, later=True)
BACK = Run("then 3 again", 3, 3, stage=3, batch=11, goes_on=AWAY, later=True)
# Distillation, from 3 ranks to 2.
ADAMW = (("optimizer", {"type": "AdamW", "params": {"lr": 0.001}}),)
DISTILLED = Run("distilled", 1, 12, settings=ADAMW, distils=True)
TAUGHT = Run("distilled, stopped", 3, 2, stage=3, settings=ADAMW, distils=True, stopped_after=4)
TAUGHT_ON = Run("then distilled on 2", 2, 4, stage=2, settings=ADAMW, distils=True, goes_on=TAUGHT, later=True)
REIMPLEMENTED = [
    *[
        Run(f"layers recomputed at stage {stage}", stage=stage, flags=("--activation-checkpointing", "layer"))
        for stage in (2, 3)
    ],
    Run("compiled", 1, 12, flags=("--compile",)),
    *[Run(f"chunked loss at stage {stage}", stage=stage, flags=("--chunked-loss",)) for stage in (1, 2, 3)],
]
OTHERS = ("parameter_sharing=none", "hidden_dropout_prob=0.1", "--objective", "mlm")
OBJECTIVES = [
    Run("nsp", 1, 12, flags=("parameter_sharing=attention", "--objective", "nsp")),
    Run("mlm", 1, 12, settings=ADAMW, flags=OTHERS, precision="bf16"),
]
SUMMED_IN_FP32 = Run(
    "summed in fp32", 1, 12, settings=(("data_types", {"grad_accum_dtype": "fp32"}),), precision="bf16"
)
# Weights that stay what they are: then the rows alone give every logged mean.
STANDING = Run(
    "standing",
    settings=(("optimizer", {"type": "Lamb", "params": {"lr": 1e-30}}),),
    flags=("--keep-checkpoints", "2"),
)
FP16 = (("initial_scale_power", 30), ("hysteresis", 1), ("loss_scale_window", 1000), ("enabled", True))
OVERFLOWING = Run("overflowing", precision="fp16", settings=(("fp16", dict(FP16)),), flags=("--steps", "30"))
AT_ITS_FLOOR = Run("at its floor", precision="fp16", settings=(("fp16", dict([*FP16, ("min_loss_scale", 2**29)])),))
DIVERGING = Run(
    "diverging", 1, 6,
    settings=(("optimizer", {"type": "Lamb", "params": {"lr": 1e30}}),),
    flags=("--steps", "40", "--warmup-steps", "4"),
)  # fmt: skip
HOURS = 0.0025
TIMED = Run(
    "timed", 1, 12,
    flags=("--max-hours", str(HOURS), "--steps", "100000", "--eval-interval", "100000", "--log-interval", "1"),
)  # fmt: skip
RUNS = [
    *SPLITS, *UNEVEN_SPLITS, THREE_ROWS, FEW_ROWS, ELEVEN_ROWS, OUT, AWAY, BACK, *REIMPLEMENTED, *OBJECTIVES,
    SUMMED_IN_FP32, STANDING, OVERFLOWING, AT_ITS_FLOOR, DIVERGING, DISTILLED, TAUGHT, TAUGHT_ON,
]  # fmt: skip
UNEVEN = [run for run in (*SPLITS, OBJECTIVES[0]) if run.name in ("1 rank x 12", "3 ranks x 4", "nsp")]
"""Their micro-batches do not divide the held-out rows."""
ALIKE = [
    *((SPLITS[0], run) for run in (*SPLITS[1:], *UNEVEN_SPLITS, *REIMPLEMENTED)),
    (THREE_ROWS, FEW_ROWS),
    (ELEVEN_ROWS, BACK),
    (DISTILLED, TAUGHT_ON),
]
"""Pairs of runs with the same results."""
