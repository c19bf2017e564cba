"""Command lines of pipeline.pretrain as dictionaries of flags, and the settings that they give."""

from pipeline.engine.hardware import Hardware
from pipeline.pretraining.pretrain_settings import make_task
from pipeline.settings import pretrain_flags

GPU = Hardware("GPU", fp16=True, bf16=True)
CONFIG = {
    "train_batch_size": 8,
    "train_micro_batch_size_per_gpu": 2,
    "optimizer": {"type": "Lamb", "params": {"lr": 0.01}},
    "zero_optimization": {"stage": 1},
}


def line(words):
    values = {flag: [value] if isinstance(value, str) else value or [] for flag, value in words.items()}
    return [part for flag, parts in values.items() for part in (flag, *parts)]


def resolve_flags(flags, world_size=2, hardware=GPU):
    return make_task(flags, world_size, hardware).settings


def resolve(words, world_size=2, hardware=GPU):
    return resolve_flags(pretrain_flags.parse(line(words)), world_size, hardware)
