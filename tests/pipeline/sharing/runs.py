"""Makes runs with several checkpoints and the records of their training, without training."""

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file

from common.files.checksums import describe_file
from data_prep.text.load_vocabulary import load_vocabulary
from model import AlbertConfig, AlbertForPreTraining
from pipeline.checkpoint import run_directory
from pipeline.checkpoint.checkpoint_manifest import CheckpointManifest, StoredTensor
from pipeline.checkpoint.files import piece_key
from pipeline.checkpoint.retention import publish, tag_name
from pipeline.engine.optimizers import KINDS
from pipeline.settings.run_settings import CorpusRecord, SourceRecord
from pipeline.tasks.registry import find_task
from tests.pipeline.analysis import made_runs
from tests.pipeline.records import finetune_settings, pretrain_settings

FIELDS = {"num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 16}
CORPUS = CorpusRecord(
    name="wikipedia",
    weight=1,
    documents=1234,
    tokens=56789,
    rows=321,
    max_seq_length=64,
    sources=(SourceRecord(directory="en|wiki", source="wikipedia", documents=1234, text_bytes=98765),),
)
RECORDED = {
    "corpora": (CORPUS,),
    "eval_data": (Path("shards/held_out"), Path("shards/second")),
    "precision": "bf16",
    "world_size": 2,
    "device": "NVIDIA H200",
    "seed": 7,
    "json": {
        "optimizer": {"type": "Lamb", "params": {"lr": 0.00176, "weight_decay": 0.01}},
        "zero_optimization": {"stage": 1},
    },
    "warmup_steps": 1,
}


def config_of(**fields):
    """The architecture of the runs."""
    more = {"embedding_size": 8, "vocab_size": 200, "max_position_embeddings": 64}
    return AlbertConfig.preset("albert-tiny", **{**FIELDS, **more, **fields})


def pretraining(directory, vocabulary, steps=(1,), config=None, recorded=None):
    """A pre-training run with a checkpoint of each of these steps; the weights are random and differ."""
    config = config or config_of()
    given = {"steps": 3, "train_batch_size": 4, "output": directory, **(recorded or {})}
    settings = pretrain_settings(model=config, **given)
    run_directory.write_settings_and_vocabulary(settings, "", load_vocabulary(vocabulary))
    for step in steps:
        torch.manual_seed(step)
        checkpoint(directory, step, AlbertForPreTraining(config).state_dict())
    return directory


def finetuning(directory, vocabulary, task="rte", step=5, score=0.5, config=None, **recorded):
    """A fine-tuning run with one checkpoint, results.json and logits: 15 of 20 examples are right."""
    config = config or config_of()
    settings = finetune_settings(model=config, task=task, output=directory, **recorded)
    made_runs.finetuning(
        directory, task, "gone", {"dev": {"accuracy": 0.75}}, seed=0, best_step=step, model=config.to_dict(),
        hyperparameters={}, examples={"train": 40, "dev": 20},
    )  # fmt: skip
    run_directory.write_settings_and_vocabulary(settings, "", load_vocabulary(vocabulary))
    torch.manual_seed(step)
    kind = find_task(task).kind
    checkpoint(directory, step, kind.make_model(find_task(task), config).state_dict(), score)
    if kind.uses_span_limits:
        made_runs.answers(directory, "dev", 15, 5)
    else:
        made_runs.logits(directory, "dev", 15, 5, classes=len(find_task(task).labels))
    return directory


def checkpoint(directory, step, tensors, score=None):
    """Adds the checkpoint of one step."""
    temporary = directory / "checkpoints" / f".{tag_name(step)}.tmp"
    temporary.mkdir(parents=True)
    rank = temporary / "rank-00000.safetensors"
    pieces = {piece_key(kind, name, 0): tensor.flatten() for kind in KINDS for name, tensor in tensors.items()}
    save_file({key: piece.clone() for key, piece in pieces.items()}, rank)
    (temporary / "state.json").write_text("{}")
    stored = {
        name: StoredTensor(tuple(tensor.shape), 0, ((rank.name, 0, tensor.numel()),))
        for name, tensor in tensors.items()
    }
    files = list(map(describe_file, temporary.iterdir()))
    publish(directory / "checkpoints" / tag_name(step), CheckpointManifest(step, score, stored, files))


def metrics(directory, losses: Mapping[int, float], **more):
    """Writes metrics.jsonl: a line of training and an evaluation with this loss for each step."""
    records = []
    for step, loss in losses.items():
        records += [
            {"step": step, "split": "train", "tokens": 1000 * step, "interval_tokens": 1000, "seconds": 60.0 * step,
             "tokens_per_second": 100.0 if step % 2 else 300.0},
            {"step": step, "split": "eval", "loss": loss, "mlm_loss": loss - 0.5, "mlm_accuracy": 0.25, "pairs": 80,
             "predictions": 400, "mlm_unigram_entropy": 6.0, "sop_accuracy": 0.6, "sop_accuracy_low": 0.49,
             "sop_accuracy_high": 0.7, **more},
        ]  # fmt: skip
    (directory / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return directory
