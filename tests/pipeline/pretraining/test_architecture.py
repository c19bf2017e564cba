"""The architecture of a run: what it needs of a trained model."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from common.errors import UserError
from model import AlbertConfig
from pipeline.pretraining.architecture import architecture


def test_a_trained_model_of_one_segment_type_is_refused():
    manifest = SimpleNamespace(max_seq_length=64, vocabulary_size=200)
    with pytest.raises(UserError, match="two segments; name an --init other than old"):
        architecture(None, {}, None, manifest, AlbertConfig(type_vocab_size=1), Path("old"))
