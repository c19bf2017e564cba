"""`export --onnx`: the graph in an export gives what `transformers` gives from the same directory."""

import numpy as np
import onnxruntime
import pytest
import torch
import transformers

from pipeline import export
from pipeline.sharing import export as sharing_export
from tests.pipeline.sharing import runs

pytestmark = pytest.mark.slow


def test_the_graph_gives_what_transformers_gives(corpus, tmp_path):
    # tests/model/test_onnx_export.py has the graphs of the other heads.
    run, out = tmp_path / "run", tmp_path / "out"
    runs.finetuning(run, corpus.vocabulary)
    assert export.main(["--run", str(run), "--out", str(out), "--onnx"]) == 0
    card = (out / "README.md").read_text()
    assert "model.onnx" in card
    assert "\n- onnx\n" in card
    model = transformers.AutoModelForSequenceClassification.from_pretrained(out).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    session = onnxruntime.InferenceSession(out / "model.onnx")
    for texts in (["Badofi gukela."], ["Badofi gukela. Monipu.", "Monipu.", "Doba fidomist gukela mola."]):
        inputs = tokenizer(texts, padding=True, return_tensors="pt")
        with torch.no_grad():
            expected = model(**inputs)
        wanted = [output.name for output in session.get_outputs() if output.name in expected]
        found = session.run(wanted, {name: tensor.numpy() for name, tensor in inputs.items()})
        assert wanted
        for name, value in zip(wanted, found):
            np.testing.assert_allclose(value, expected[name].numpy(), atol=1e-4, rtol=0)


def test_a_missing_package_is_one_line(corpus, tmp_path, monkeypatch, capsys):
    runs.pretraining(tmp_path / "run", corpus.vocabulary)
    monkeypatch.setattr(sharing_export, "missing_packages", lambda: ["onnx", "onnxscript"])
    words = ["--run", str(tmp_path / "run"), "--out", str(tmp_path / "out"), "--onnx"]
    assert export.main(words) == 2
    said = capsys.readouterr().err
    assert said == "error: --onnx needs onnx and onnxscript; pip install 'albert-pretraining[onnx]'\n"
    assert not (tmp_path / "out").exists()
