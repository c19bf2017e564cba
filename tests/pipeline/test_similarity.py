"""Figure 1: its measures by hand and from hooks, and the command on an export and its vocabulary."""

import json
import math
from itertools import chain, pairwise

import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import Tensor

from common.errors import UserError
from data_prep.text.vocabulary import Vocabulary
from model import AlbertConfig, AlbertForPreTraining, AlbertModel, checkpoint, huggingface
from pipeline import similarity
from pipeline.similarity import ROWS_PER_BATCH, LayerSimilarity, draw, measure, rows_of, similarity_sums
from pipeline.tasks.registry import find_task
from tests.model.examples import random_ids, randomise, tiny_config

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
        tuned = task.kind.make_model(task, small.config)
        tuned.albert.load_state_dict(small.albert.state_dict(), strict=False)  # without the pooler
        huggingface.save(tuned, export, corpus.vocabulary, task.kind.head_fields(task))
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


def test_distances_and_angles_by_hand() -> None:
    # Token 1: (3, 4) -> (3, -4): distance 8, cosine (9 - 16) / 25. Token 2: (1, 0) -> (0, 2): sqrt(5), 0.
    before = torch.tensor([[[3.0, 4.0], [1.0, 0.0], [9.0, 9.0]]])
    after = torch.tensor([[[3.0, -4.0], [0.0, 2.0], [1.0, 1.0]]])
    found = similarity_sums([before, after], torch.tensor([[True, True, False]]))
    assert found.tolist() == [[pytest.approx(8 + math.sqrt(5))], [pytest.approx(-7 / 25)]]
    degrees = LayerSimilarity((1.0, 1.0), (-0.14, 1.0000001), 2).degrees
    assert degrees == pytest.approx((math.degrees(math.acos(-0.14)), 0.0))


@pytest.mark.parametrize("fields", [{}, {"inner_group_num": 2}, {"parameter_sharing": "none"}])
def test_it_is_what_hooks_on_the_blocks_see(fields: dict[str, int]) -> None:
    config = tiny_config(num_hidden_layers=4, **fields)
    model = AlbertModel(config).eval()
    randomise(model, seed=1)
    inputs: list[Tensor] = []
    outputs: list[Tensor] = []
    for module in model.encoder.attention:
        module.register_forward_hook(lambda _, arguments, __: inputs.append(arguments[0]))
    for module in model.encoder.feed_forward:
        module.register_forward_hook(lambda _, __, output: outputs.append(output))
    wanted = [[0.0, 0.0] for _ in range(4)]
    lengths = [9, 5, 12, 1, 3, 4, 8, 2, 11]  # more than one batch
    mask = torch.arange(12) < torch.tensor(lengths)[:, None]
    found = measure(model, random_ids(0, len(lengths), 12) * mask)
    depth = config.inner_group_num
    blocks = 4 * depth
    for row, length in enumerate(lengths):
        batch, place = divmod(row, ROWS_PER_BATCH)
        for layer, sums in enumerate(wanted):
            for position in range(length):
                x = inputs[batch * blocks + layer * depth][place, position].tolist()
                y = outputs[batch * blocks + (layer + 1) * depth - 1][place, position].tolist()
                sums[0] += math.dist(x, y)
                sums[1] += sum(a * b for a, b in zip(x, y)) / math.hypot(*x) / math.hypot(*y)
    assert found.tokens == sum(lengths)
    assert found.l2_distances == pytest.approx([sums[0] / sum(lengths) for sums in wanted], rel=1e-6)
    assert found.cosines == pytest.approx([sums[1] / sum(lengths) for sums in wanted], rel=1e-6)
