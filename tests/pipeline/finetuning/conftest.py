"""An export of a small model with random weights, and the files of every task of the paper."""

from types import SimpleNamespace

import pytest
import torch

from data_prep.text.vocabulary import Vocabulary
from model import AlbertConfig, AlbertForPreTraining, huggingface
from tests.pipeline.tasks import task_files


@pytest.fixture(scope="session")
def data(corpus, tmp_path_factory):
    """An export of a small model with random weights, and every task's files."""
    root = tmp_path_factory.mktemp("finetune")
    task_files.write_all(root)
    fields = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64}
    config = AlbertConfig.preset(
        "albert-tiny", **fields, embedding_size=16, vocab_size=len(Vocabulary.load(corpus.vocabulary)),
        max_position_embeddings=64,
    )  # fmt: skip
    torch.manual_seed(0)
    huggingface.save(AlbertForPreTraining(config), root / "export", corpus.vocabulary)
    return SimpleNamespace(
        root=root, init=root / "export", glue=root / "glue", squad=root / "squad", race=root / "race"
    )
