"""The sizes of a study: `CPU` for three hours on two cores, `GPU` for ten minutes, `SMALL` for a test in seconds.

`DEEP` is what two cores can show about the start of a deep model: albert-base at a third of its width.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

BETAS = [0.9, 0.98]
"""The mean of squared gradients forgets soon: 0.999 would remember the large gradients of the start to the end."""

NO_DROPOUT = {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}

STARTS = {
    "paper": "initial_attention=random embedding_initializer_range=0.02",
    "neighbours": "initial_attention=neighbours embedding_initializer_range=0.1",
    "quick": "initial_attention=neighbours embedding_initializer_range=0.1 initial_output_bias=frequencies "
    "residual_initializer_range=0.004",
}
"""The fields of AlbertConfig of each start."""


@dataclass(frozen=True)
class Choice:
    """One of the settings that the probe chooses from: the optimizer, its peak rate, and the initial weights."""

    optimizer: str
    rate: float
    start: str

    @property
    def name(self) -> str:
        """For files and people, such as "lamb-0.004-neighbours"."""
        return f"{self.optimizer.lower()}-{self.rate:g}-{self.start}"


@dataclass(frozen=True)
class Plan:
    """The size of a study.

    Attributes:
        minutes: of the whole study, unless the command line says otherwise.
        vocabulary_size: pieces; a published vocabulary of this size is used if there is one.
        length: tokens of a row, and of the longest sequence in fine-tuning.
        preset: of the model.
        model: fields of `AlbertConfig` that replace those of the preset.
        precision: "fp16" or "bf16", as far as the machine has it.
        batch, micro_batch: rows of a batch and, on each rank, of a micro-batch; half of it in the probe, whose runs
            share the machine.
        choices: what the probe chooses from. The first one is taken without a probe if there are no validation rows.
        probe_steps, probe_evaluations: of each run of the probe.
        flags: further flags of pipeline.pretrain.
        evaluations: of pre-training.
        eval_batches: of each corpus in an evaluation, at most.
        milestones: tokens after which a checkpoint is kept and scored on minimal pairs.
        pairs, final_pairs: of each paradigm at a milestone, and in the end (None: all).
        pretraining, finetuning: parts of the minutes; the rest is for data, probe, starts, minimal pairs and the page.
        learning_rate: of fine-tuning.
        epochs: passes over the training set in fine-tuning, at most.
        batch_tokens: of a step of fine-tuning, on average.
        batch_sizes: the smallest and the largest batch of fine-tuning, in samples.
        task_speed: the part of the speed of pre-training that fine-tuning reaches.
        task_tokens: that all runs of a task read together, at least, if the minutes suffice for more than one task.
        seeds: fine-tuning runs of each model on each task.
    """

    minutes: float
    vocabulary_size: int
    length: int
    preset: str
    model: Mapping[str, object]
    precision: str
    batch: int
    micro_batch: int
    choices: tuple[Choice, ...]
    probe_steps: int
    evaluations: int
    eval_batches: int
    learning_rate: float
    flags: tuple[str, ...] = ()
    milestones: tuple[str, ...] = ()
    pairs: int = 100
    final_pairs: int | None = None
    pretraining: float = 0.5
    finetuning: float = 0.3
    probe_evaluations: int = 1
    epochs: int = 8
    batch_tokens: int = 640
    batch_sizes: tuple[int, int] = (4, 32)
    task_speed: float = 1.0
    task_tokens: int = 4_000_000
    seeds: int = 3

    @property
    def stride(self) -> int:
        """Tokens from the start of one window of a passage to the start of the next one."""
        return self.length // 2

    def batch_size(self, mean_tokens: float) -> int:
        """The samples of a step of fine-tuning, whose mean number of tokens is given."""
        smallest, largest = self.batch_sizes
        return max(smallest, min(largest, round(self.batch_tokens / mean_tokens)))

    def engine(self, choice: Choice, micro_batch: int) -> dict[str, Any]:
        """The DeepSpeed JSON: gradients are summed in fp32, whatever the precision is."""
        parameters = {"lr": choice.rate, "betas": BETAS, "eps": 1e-6, "weight_decay": 0.01}
        scale = {"initial_scale_power": 14, "loss_scale_window": 500, "hysteresis": 1}
        return {
            "train_batch_size": self.batch,
            "train_micro_batch_size_per_gpu": micro_batch,
            "optimizer": {"type": choice.optimizer, "params": parameters},
            "gradient_clipping": 1.0,
            self.precision: {"enabled": True, **(scale if self.precision == "fp16" else {})},
            "zero_optimization": {"stage": 1, "reduce_bucket_size": 12_000_000, "allgather_bucket_size": 12_000_000},
            "zero_allow_untested_optimizer": True,
            "data_types": {"grad_accum_dtype": "fp32"},
            "communication_data_type": "fp32",
        }


CPU = Plan(
    minutes=180,
    vocabulary_size=8000,
    length=128,
    preset="albert-tiny",
    model={"num_hidden_layers": 2, "hidden_size": 192, "num_attention_heads": 6}
    | {"intermediate_size": 768, "embedding_size": 128},
    precision="bf16",
    batch=32,
    micro_batch=16,
    choices=(Choice("AdamW", 0.0015, "neighbours"), Choice("AdamW", 0.003, "neighbours")),
    probe_steps=300,
    flags=("--mask-probability", "0.3"),
    evaluations=8,
    eval_batches=24,
    milestones=("1M", "2M", "5M", "10M", "20M"),
    learning_rate=3e-4,
)

DEEP = replace(
    CPU,
    preset="albert-base",
    model={"hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024, **NO_DROPOUT},
    batch=16,
    micro_batch=8,
    choices=(Choice("Lamb", 0.004, "quick"), Choice("AdamW", 0.001, "quick")),
    milestones=(),
    final_pairs=100,
    pretraining=0.75,
    finetuning=0.1,
)

GPU = Plan(
    minutes=10,
    vocabulary_size=30_000,
    length=128,
    preset="albert-base",
    model=NO_DROPOUT,
    precision="fp16",
    batch=128,
    micro_batch=128,
    choices=(
        Choice("Lamb", 0.002, "quick"),
        Choice("Lamb", 0.0005, "quick"),
        Choice("AdamW", 0.0004, "quick"),
        Choice("Lamb", 0.002, "neighbours"),
        Choice("Lamb", 0.002, "paper"),
    ),
    probe_steps=400,
    probe_evaluations=8,
    evaluations=8,
    eval_batches=16,
    milestones=("10M", "20M", "50M", "100M", "200M"),
    pairs=200,
    pretraining=0.5,
    finetuning=0.15,
    learning_rate=5e-5,
    epochs=3,
    batch_tokens=4096,
    batch_sizes=(32, 32),
    task_speed=0.3,
    task_tokens=0,
)

SMALL = Plan(
    minutes=60,
    vocabulary_size=200,
    length=64,
    preset="albert-tiny",
    model={"num_hidden_layers": 1, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64},
    precision="bf16",
    batch=4,
    micro_batch=2,
    choices=(Choice("AdamW", 0.001, "quick"), Choice("Lamb", 0.001, "paper")),
    probe_steps=10,
    probe_evaluations=2,
    evaluations=4,
    eval_batches=4,
    milestones=("1k", "900M"),
    pairs=2,
    learning_rate=1e-3,
    epochs=1,
    batch_tokens=1,
    task_tokens=1,
    seeds=2,
)

PLANS = {"cpu": CPU, "deep": DEEP, "gpu": GPU, "small": SMALL}
