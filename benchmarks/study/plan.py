"""The settings of a study: `FULL` is for three hours on two cores, `SMALL` for a test in seconds."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


def small_model_config(rate: float, rows: int, micro_batch: int) -> dict[str, Any]:
    """The DeepSpeed JSON of a small model in bf16, trained by AdamW.

    Args:
        rate: peak learning rate.
        rows: of a batch.
        micro_batch: rows of a micro-batch on each rank.
    """
    return {
        "train_batch_size": rows,
        "train_micro_batch_size_per_gpu": micro_batch,
        "optimizer": {
            "type": "AdamW",
            "params": {"lr": rate, "betas": [0.9, 0.98], "eps": 1e-6, "weight_decay": 0.01},
        },
        "gradient_clipping": 1.0,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 1, "reduce_bucket_size": 2_000_000, "allgather_bucket_size": 2_000_000},
        "zero_allow_untested_optimizer": True,
    }


@dataclass(frozen=True)
class Plan:
    """The size of a study.

    Attributes:
        vocabulary_size: pieces.
        length: tokens of a row, and of the longest sequence in fine-tuning.
        model: fields of `AlbertConfig` that replace those of albert-tiny.
        pretraining: the DeepSpeed JSON.
        flags: further flags of pipeline.pretrain.
        evaluations: of pre-training.
        eval_batches: of each corpus in an evaluation, at most.
        learning_rate: of fine-tuning.
        epochs: passes over the training set in fine-tuning, at most.
        batch_tokens: of a step of fine-tuning, on average.
        task_tokens: that all runs of a task read together, at least, if the hours suffice for more than one task.
        seeds: fine-tuning runs of each model on each task.
    """

    vocabulary_size: int
    length: int
    model: Mapping[str, object]
    pretraining: Mapping[str, Any]
    flags: tuple[str, ...]
    evaluations: int
    eval_batches: int
    learning_rate: float
    epochs: int = 8
    batch_tokens: int = 640
    task_tokens: int = 4_000_000
    seeds: int = 3

    @property
    def stride(self) -> int:
        """Tokens from the start of one window of a passage to the start of the next one."""
        return self.length // 2

    def batch_size(self, mean_tokens: float) -> int:
        """The samples of a step of fine-tuning, whose mean number of tokens is given: 4 to 32."""
        return max(4, min(32, round(self.batch_tokens / mean_tokens)))


FULL = Plan(
    vocabulary_size=8000,
    length=128,
    model={
        "num_hidden_layers": 2,
        "hidden_size": 192,
        "num_attention_heads": 6,
        "intermediate_size": 768,
        "embedding_size": 128,
    },
    pretraining=small_model_config(0.0015, 32, 16),
    flags=("--mask-probability", "0.3"),
    evaluations=8,
    eval_batches=24,
    learning_rate=3e-4,
)

SMALL = Plan(
    vocabulary_size=200,
    length=64,
    model={"num_hidden_layers": 1, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64},
    pretraining=small_model_config(0.001, 4, 2),
    flags=(),
    evaluations=4,
    eval_batches=4,
    learning_rate=1e-3,
    epochs=1,
    batch_tokens=1,
    task_tokens=1,
    seeds=2,
)

PLANS = {"full": FULL, "small": SMALL}
