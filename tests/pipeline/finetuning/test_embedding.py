"""Embeddings are those of `transformers` with mean pooling, however the texts are packed into rows."""

import pyarrow.parquet as pq
import pytest
import torch
import transformers

from pipeline import predict
from tests.pipeline.pretraining.trained_models import export
from tests.pipeline.tasks import own_files

TEXTS = ["Bafilon dolon.", "Sara vi!", "☃", "kemist " * 70, "Monipu.", "Café, DOLON gukela mola."]


def write(directory, texts=TEXTS, **columns):
    return own_files.write(directory / "new.csv", {"text": texts, **columns})


def test_they_are_the_normalised_means_of_the_last_layer(corpus, tmp_path):
    model = export(tmp_path / "model", corpus.vocabulary, initializer_range=0.3)
    out = tmp_path / "out.parquet"
    line = ["--run", str(model), "--embed", "--input", str(write(tmp_path)), "--out", str(out), "--batch-size", "4"]
    assert predict.main(line) == 0
    rows = pq.read_table(out).to_pylist()
    assert [row["text"] for row in rows] == TEXTS
    theirs, tokenizer = (one.from_pretrained(model) for one in (transformers.AutoModel, transformers.AutoTokenizer))
    for text, row in zip(TEXTS, rows):
        inputs = tokenizer(text, return_tensors="pt", truncation=True, max_length=theirs.config.max_position_embeddings)
        with torch.no_grad():
            mean = theirs.eval()(**inputs).last_hidden_state[0].mean(dim=0)
        assert row["embedding"] == pytest.approx((mean / mean.norm()).tolist(), abs=1e-5)


@pytest.mark.parametrize(
    ("words", "columns", "message"),
    [
        (["--mask", "[MASK]"], {}, "--mask goes alone"),
        (["--text-column", "review"], {}, "has no column 'review'; it has text"),
        ([], {"embedding": TEXTS}, "the input has a column 'embedding', as the output will"),
    ],
)
def test_a_mistake_is_one_line(corpus, tmp_path, capsys, words, columns, message):
    line = ["--run", str(tmp_path), "--embed", "--input", str(write(tmp_path, **columns)), "--out"]
    assert predict.main([*line, str(tmp_path / "out.jsonl"), *words]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out.jsonl").exists()
