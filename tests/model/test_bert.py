"""BERT's directories of `transformers`, today's and the oldest, are read as the models that they are."""

import json
from pathlib import Path
from typing import Any

import pytest
import transformers

from model import huggingface
from tests.model.examples import randomise

SMALL = {
    "vocab_size": 50,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 32,
    "max_position_embeddings": 12,
}


def bert(**fields: Any) -> transformers.BertForPreTraining:
    model = transformers.BertForPreTraining(transformers.BertConfig(**SMALL | fields)).eval()
    randomise(model, seed=3)
    return model


@pytest.mark.parametrize("change", [{"is_decoder": True}, {"position_embedding_type": "relative_key"}])
def test_what_is_not_the_encoder_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    bert().save_pretrained(tmp_path)
    fields = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(fields | change))
    with pytest.raises(ValueError, match="only BERT's encoder can be read"):
        huggingface.read(tmp_path)
