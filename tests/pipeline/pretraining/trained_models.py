"""Trained models to start from, in the layouts in which others publish them."""

import shutil
from pathlib import Path
from typing import Any

import torch
import transformers

from data_prep.text.load_vocabulary import load_vocabulary
from data_prep.text.tokenizer_json import tokenizer_files
from model import AlbertConfig, AlbertForPreTraining, huggingface
from tests.model.examples import randomise

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "attn_implementation": "eager",
}


def albert(vocabulary: Path, positions: int = 64, **fields: Any) -> transformers.AlbertForPreTraining:
    """A small ALBERT of `transformers` with random values in every parameter."""
    sizes = SIZES | {"vocab_size": len(load_vocabulary(vocabulary)), "embedding_size": 16}
    config = transformers.AlbertConfig(**sizes | {"max_position_embeddings": positions} | fields)
    model = transformers.AlbertForPreTraining(config).eval()
    randomise(model, seed=1, scale=0.2)
    return model


def bert(vocabulary: Path) -> transformers.BertForPreTraining:
    """A small BERT of `transformers` with random values in every parameter."""
    sizes = SIZES | {"vocab_size": len(load_vocabulary(vocabulary)), "max_position_embeddings": 64}
    model = transformers.BertForPreTraining(transformers.BertConfig(**sizes)).eval()
    randomise(model, seed=2, scale=0.2)
    return model


def publish(model: Any, directory: Path, vocabulary: Path, pickled: bool = False) -> Path:
    """Writes `model` as it is published: config.json, weights and spiece.model. Returns the directory."""
    model.save_pretrained(directory)
    shutil.copyfile(vocabulary, directory / "spiece.model")
    if pickled:
        (directory / "model.safetensors").unlink()
        torch.save(model.state_dict(), directory / "pytorch_model.bin")
    return directory


def export(directory: Path, vocabulary: Path, **fields: Any) -> Path:
    """Exports a small ALBERT of the project, with the same random weights each time. Returns the directory."""
    sizes = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64}
    sizes |= {"embedding_size": 16, "vocab_size": len(load_vocabulary(vocabulary)), "max_position_embeddings": 64}
    torch.manual_seed(0)
    model = AlbertForPreTraining(AlbertConfig.preset("albert-tiny", **sizes | fields))
    files = tokenizer_files(load_vocabulary(vocabulary), model.config.max_position_embeddings)
    huggingface.save(model, directory, files)
    return directory
