"""The command of Figure 1, on an export and its vocabulary."""

import json
from itertools import chain, pairwise

import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from common.errors import UserError
from data_prep.text.vocabulary import Vocabulary
from model import AlbertConfig, AlbertForPreTraining, checkpoint, huggingface
from model.inspection.similarity import LayerSimilarity
from pipeline import similarity
from pipeline.analysis.layer_similarity import draw, rows_of
from pipeline.finetuning.export import head_fields
from pipeline.finetuning.heads import make_model
from pipeline.tasks.registry import find_task

TEXT = "Badofi gukela. Monipu resadolon vitobamist!\n\nFigu kelamo, nipure sado.\n"


@pytest.fixture
def small(corpus):
    """A model of three layers with the vocabulary of the corpus, in evaluation mode."""
    torch.manual_seed(0)
    fields = {"vocab_size": 200, "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 3}
    config = AlbertConfig(**fields, intermediate_size=64, embedding_size=16, max_position_embeddings=16)
    return AlbertForPreTraining(config).eval()


@pytest.mark.parametrize("form", ["transformers", "own", "fine-tuned"])
def test_the_command_writes_table_png_and_tensorboard(small, corpus, tmp_path, capsys, form):
    export, text, out = tmp_path / "export", tmp_path / "text.txt", tmp_path / "out"
    text.write_text(TEXT, encoding="utf-8")
    if form == "own":
        checkpoint.save(small, export)
        (export / "spiece.model").write_bytes(corpus.vocabulary.read_bytes())
    elif form == "fine-tuned":
        task = find_task("squad1")
        tuned = make_model(task, small.config)
        tuned.albert.load_state_dict(small.albert.state_dict(), strict=False)  # without the pooler
        huggingface.save(tuned, export, corpus.vocabulary, head_fields(task))
    else:
        huggingface.save(small, export, corpus.vocabulary)
    assert similarity.main(["--model", str(export), "--text", str(text), "--out", str(out)]) == 0
    found = json.loads((out / "similarity.json").read_text())

    rows = rows_of(TEXT, Vocabulary.load(corpus.vocabulary), 16)
    states = small.albert(rows, attention_mask=rows != 0).hidden_states
    distances = [(after - before)[rows != 0].norm(dim=-1).mean().item() for before, after in pairwise(states)]
    assert found["l2_distances"] == pytest.approx(distances, rel=1e-5)
    assert found["tokens"] == int((rows != 0).sum())

    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["layer", "1", "2", "3"]
    assert float(lines[2].split()[1]) == pytest.approx(distances[1], abs=1e-3)
    assert (out / "similarity.png").read_bytes().startswith(b"\x89PNG")
    events = EventAccumulator(str(out / "tensorboard"))
    events.Reload()
    assert events.Tags()["images"] == ["similarity"]


def test_every_label_is_inside_the_figure():
    figure = draw(LayerSimilarity((1.0, 2.0), (0.9, 0.8), 10), "a model")
    FigureCanvasAgg(figure).draw()
    labels = [text for axes in figure.axes for text in (axes.xaxis.label, axes.yaxis.label, axes.title)]
    for label in [*labels, figure._suptitle]:
        assert label.get_text()
        box = label.get_window_extent()
        assert figure.bbox.containsx(box.x0), label
        assert figure.bbox.containsx(box.x1), label
        assert figure.bbox.containsy(box.y0), label
        assert figure.bbox.containsy(box.y1), label


def test_rows_hold_the_text_once(corpus):
    vocabulary = Vocabulary.load(corpus.vocabulary)
    rows = rows_of(TEXT, vocabulary, 16)
    assert (rows[:, 0] == 2).all()
    inside = [row[(row != 0) & (row != 2) & (row != 3)].tolist() for row in rows]
    lines = [line.lower() for line in TEXT.splitlines() if line]
    assert list(chain(*inside)) == list(chain(*vocabulary.encode(lines)))
    assert all(len(row) == 14 for row in inside[:-1])
    assert int((rows_of(TEXT, vocabulary, 16, limit=5) != 0).sum()) == 1 + 5 + 1


@pytest.mark.parametrize(
    ("model", "text", "message"),
    [
        ("nothing", TEXT, "--model .*is not a directory"),
        ("export", "\n \n", "holds no words"),
        ("export", None, "UTF-8"),
    ],
)
def test_mistakes_are_one_line(small, corpus, tmp_path, capsys, model, text, message):
    huggingface.save(small, tmp_path / "export", corpus.vocabulary)
    if text is not None:
        (tmp_path / "text.txt").write_text(text)
    command = ["--model", str(tmp_path / model), "--text", str(tmp_path / "text.txt"), "--out", str(tmp_path / "out")]
    assert similarity.main(command) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    with pytest.raises(UserError, match=message):
        raise UserError(error)
    assert not (tmp_path / "out").exists()
