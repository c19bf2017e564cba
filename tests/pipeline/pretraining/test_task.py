"""The losses of pre-training and of distillation, however a batch is divided; metrics; the start from a teacher."""

import math
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sentencepiece import sentencepiece_model_pb2
from torch.nn.functional import cosine_similarity

from common.errors import UserError
from data_prep.text.load_vocabulary import load_vocabulary
from model import AlbertConfig, AlbertForPreTraining, AlbertModel, ExecutionOptions
from model.distillation import PARTS, principal_directions
from pipeline.checkpoint.initial_weights import InitialWeights
from pipeline.data.collate import Collator, blank
from pipeline.data.rng import dropout_seed
from pipeline.pretraining import distillation
from pipeline.pretraining.distillation import Distillation, Teacher, parse_parts, start_as_teacher
from pipeline.pretraining.pretraining_task import LabelCounts, PreTraining, PretrainingSums, entropy
from pipeline.training.step_metrics import Meter
from pipeline.training.training_run import unmonitored
from tests.model.examples import randomise
from tests.pipeline.data.test_collate import VOCABULARY, collator, random_shards
from tests.pipeline.pretraining import trained_models
from tests.pipeline.pretraining.command_lines import resolve


def make_model(**execution):
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64, "embedding_size": 16}
    sizes |= {"vocab_size": VOCABULARY, "max_position_embeddings": 64, "initializer_range": 0.2}
    return AlbertForPreTraining(AlbertConfig.preset("albert-tiny", **sizes), ExecutionOptions(**execution))


def tensors(batch):
    return {name: torch.from_numpy(array) for name, array in batch._asdict().items()}


def gradients(model):
    found = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()
    return found


@pytest.mark.parametrize("attention", ["masked", "sequences"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_empty_rows_have_no_loss_and_gradients_of_zero(attention, dtype):
    model = make_model(attention=attention).to(dtype)
    batch = blank(3, collator(random_shards(count=12)).shape)
    task = PreTraining(SimpleNamespace(), None, None, None)
    assert task.label_counts([batch]) == (0, 0)
    output = model(**tensors(batch))
    loss = task.loss(output, LabelCounts(7.0, 0.0), 2)  # other ranks have labels
    assert loss.item() == 0.0
    assert [value.item() for value in task.sums(output, tensors(batch))] == [0.0] * 8
    loss.backward()
    for name, gradient in gradients(model).items():
        assert not gradient.any(), name  # NaN would be True


def test_ranks_steps_and_seeds_have_dropout_of_their_own():
    seeds = [dropout_seed(*key) for key in np.ndindex(3, 20, 8)]  # seed, step, rank
    assert len(set(seeds)) == len(seeds)
    assert seeds == [dropout_seed(*key) for key in np.ndindex(3, 20, 8)]
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_nothing_predicted_is_no_number():
    task = PreTraining(SimpleNamespace(objective="sop"), None, None, None)
    found = task.summarise(PretrainingSums(*[0.0] * 6, tokens=5.0, rows=1.0))
    assert math.isnan(found["mlm_loss"])
    assert "sop_loss" not in found
    assert found["interval_tokens"] == 5


def test_entropy_of_known_distributions():
    assert entropy(torch.tensor([5.0, 5.0, 0.0, 5.0, 5.0])) == pytest.approx(math.log(4))
    assert entropy(torch.tensor([9.0, 0.0])) == 0.0
    half = entropy(torch.tensor([2.0, 1.0, 1.0]))
    assert half == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(4))


def test_the_output_bias_can_begin_at_the_frequencies_of_the_masked_tokens():
    rows = collator(random_shards(count=12))
    read, losses = [], {}
    for start in ("zeros", "frequencies"):
        small = {"initial_attention": "random", "embedding_initializer_range": 1e-3}
        config = AlbertConfig.preset("albert-tiny", vocab_size=VOCABULARY, initial_output_bias=start, **small)
        task = PreTraining(SimpleNamespace(model=config, execution=ExecutionOptions()), None, None, None)
        task.training = SimpleNamespace(
            read=lambda positions: read.append(len(positions)) or rows.read([0] * 12, list(range(12)))
        )
        torch.manual_seed(0)
        model, inputs = task.make_model(), tensors(rows.read([0] * 12, list(range(12))))
        losses[start] = (model(**inputs).mlm_loss_sum / task.label_counts([task.training.read([])]).predictions).item()
    assert read == [0, 8192, 0]
    labels = inputs["masked_labels"][inputs["masked_labels"] >= 0].tolist()
    shares = [labels.count(token) / len(labels) for token in range(VOCABULARY)]
    expected = [math.log(share or 0.5 / len(labels)) for share in shares]
    torch.testing.assert_close(model.mlm_head.bias.detach(), torch.tensor(expected))
    assert losses["zeros"] == pytest.approx(math.log(VOCABULARY), abs=0.01)
    # What the tokens that were not seen get is missing.
    unseen = math.log(sum(math.exp(one) for one in expected))
    assert losses["frequencies"] == pytest.approx(entropy(torch.tensor(shares)) + unseen, abs=0.01)


def test_an_evaluation_reads_its_batches_ahead_in_a_thread(monkeypatch):
    readers = []
    read = Collator.read

    def note_and_read(self, *arguments):
        readers.append(threading.current_thread())
        return read(self, *arguments)

    monkeypatch.setattr(Collator, "read", note_and_read)
    engine, settings = make_model(), SimpleNamespace(engine=SimpleNamespace(micro_batch_size=2))
    task = PreTraining(settings, None, None, None)
    task.control, engine.device = SimpleNamespace(rank=0, world_size=1), torch.device("cpu")
    found = list(task._outputs(engine, collator(random_shards(count=6)), None, unmonitored))
    assert len(found) == len(readers) == 3
    assert threading.main_thread() not in readers
    assert engine.training


BERT = {
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_hidden_layers": 4,
    "intermediate_size": 48,
    "embedding_size": 32,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 64,
    "hidden_dropout_prob": 0.1,
    "parameter_sharing": "none",
    "hidden_act": "gelu",
    "sentence_head": "nsp",
}
ALL = tuple(f"{name}=1" for name in PARTS)


def make_teacher(loss=ALL, **fields):
    torch.manual_seed(1)
    model = AlbertForPreTraining(AlbertConfig.from_dict(BERT | fields))
    randomise(model, seed=1, scale=0.2)
    weights = InitialWeights(model.config, model.state_dict(), Path(), None, None)
    return Teacher(Path(), weights, weights.digest(), parse_parts(loss))


def make_student(teacher, **fields):
    torch.manual_seed(0)
    config = AlbertConfig.from_dict(teacher.student_config().to_dict() | {"embedding_size": 16} | fields)
    return teacher.make_student(config, ExecutionOptions())


def read_batch(rows=12):
    return collator(random_shards(count=12)).read([0] * rows, list(range(rows)))


def task_of(teacher):
    return Distillation(SimpleNamespace(objective="sop"), None, None, None, teacher)


@torch.no_grad()
def test_the_distances_are_those_of_each_sequence_alone():
    teacher = make_teacher()
    student, batch, encoder = make_student(teacher).eval(), read_batch(), teacher.encoder()
    found = student(**tensors(batch)).distances
    wanted, tokens, sequences, pairs = dict.fromkeys(PARTS, 0.0), 0, 0, 0
    for row in range(12):
        means = []
        for number in range(int(batch.sequence_ids[row].max()) + 1):
            here = batch.sequence_ids[row] == number
            inputs = {"input_ids": torch.from_numpy(batch.input_ids[row, here][None])}
            inputs["token_type_ids"] = torch.from_numpy(batch.token_type_ids[row, here][None])
            outputs = student.albert(**inputs, keep_contexts=True), encoder(**inputs, keep_contexts=True)
            own, goal = (one.hidden_states for one in outputs)
            wanted["states"] += (1 - cosine_similarity(own[-1][0], goal[-1][0])).sum()
            for one, other in zip(own[1:], goal[1:], strict=True):
                wanted["layers"] += (1 - cosine_similarity(one[0], other[0])).sum() / 4
            for one, other in zip(*(output.contexts for output in outputs), strict=True):
                for head in range(0, 32, 8):
                    of_head = cosine_similarity(one[0, :, head : head + 8], other[0, :, head : head + 8])
                    wanted["attention"] += (1 - of_head).sum() / (4 * 4)
            means.append((own[-1][0].mean(0), goal[-1][0].mean(0)))
            wanted["pooled"] += 1 - cosine_similarity(*means[-1], dim=0)
            tokens, sequences = tokens + int(here.sum()), sequences + 1
        for one, (own_mean, goal_mean) in enumerate(means):
            for other, (own_other, goal_other) in enumerate(means):
                error = cosine_similarity(own_mean, own_other, dim=0) - cosine_similarity(goal_mean, goal_other, dim=0)
                wanted["similarity"] += error**2 * (one != other)
                pairs += one != other
    for name in PARTS:
        assert float(getattr(found, name)) == pytest.approx(float(wanted[name]), rel=1e-4), name
    assert task_of(teacher).label_counts([batch]) == (tokens, sequences, pairs)
    assert pairs > 0


@pytest.mark.parametrize(("layers", "taught"), [(2, (2, 4)), (3, (2, 3, 4)), (8, (1, 1, 2, 2, 3, 3, 4, 4))])
@torch.no_grad()
def test_layers_and_heads_of_a_student_of_another_depth_learn_those_of_the_teacher_evenly(layers, taught):
    teacher = make_teacher()
    student, batch, encoder = make_student(teacher, num_hidden_layers=layers).eval(), read_batch(), teacher.encoder()
    start_as_teacher(student, teacher, torch.ones(VOCABULARY))
    for block, layer in zip(student.albert.encoder.attention, taught, strict=True):
        assert torch.equal(block.dense.weight, encoder.encoder.attention[layer - 1].dense.weight)
    found = student(**tensors(batch)).distances
    inputs = {name: tensors(batch)[name] for name in ("input_ids", "token_type_ids", "position_ids", "sequence_ids")}
    own, goal = student.albert(**inputs, keep_contexts=True), encoder(**inputs, keep_contexts=True)
    tokens, wanted = inputs["sequence_ids"] >= 0, 0.0
    for number, layer in enumerate(taught):
        heads = (one.unflatten(-1, (4, 8)) for one in (own.contexts[number], goal.contexts[layer - 1]))
        wanted += (1 - cosine_similarity(*heads, dim=-1))[tokens].sum() / (4 * layers)
    assert float(found.attention) == pytest.approx(float(wanted), rel=1e-4)


def test_the_summary_is_the_loss_and_its_parts():
    teacher = make_teacher(("states=1", "similarity=3"))
    student, batch, task = make_student(teacher), read_batch(), task_of(teacher)
    output = student(**tensors(batch))
    totals = task.sums(output, tensors(batch))
    summary = task.summarise(type(totals)(*(value.item() for value in totals)))
    loss = task.loss(output, task.label_counts([batch]), 1)
    assert summary["loss"] == pytest.approx(loss.item(), rel=1e-5)
    parts = summary["distil_states"] + 3 * summary["distil_similarity"]
    assert summary["loss"] == pytest.approx(parts, rel=1e-5)
    assert "distil_pooled" not in summary
    meter, broken = Meter(type(totals), "cpu"), totals._replace(states=torch.tensor(math.nan))
    meter.add(broken)
    nothing = task.summarise(meter.totals())
    assert (nothing["interval_tokens"], nothing["loss"]) == (int(totals.tokens), pytest.approx(math.nan, nan_ok=True))
    meter.add(totals)
    assert task.summarise(meter.totals())["loss"] == pytest.approx(summary["loss"], rel=1e-6)


def test_empty_rows_and_the_heads_have_gradients_of_zero():
    teacher = make_teacher()
    student, task = make_student(teacher), task_of(teacher)
    output = student(**tensors(blank(3, collator(random_shards(count=12)).shape)))
    loss = task.loss(output, task.label_counts([read_batch()]), 2)
    assert loss.item() == 0.0
    loss.backward()
    for name, gradient in gradients(student).items():
        assert not gradient.any(), name  # NaN would be True


def test_a_student_of_the_teachers_shape_starts_as_the_teacher():
    teacher = make_teacher()
    student = make_student(teacher, embedding_size=32, parameter_sharing="none").eval()
    start_as_teacher(student, teacher, torch.ones(VOCABULARY))
    found = student(**tensors(read_batch())).distances
    assert all(value.item() < 1e-3 for value in found)


def test_what_a_student_shares_starts_as_a_mean_and_embeddings_start_near_those_of_frequent_pieces():
    teacher = make_teacher()
    student, encoder = make_student(teacher).eval(), teacher.encoder()
    counts = 10_000 * (torch.arange(VOCABULARY) < 12)
    start_as_teacher(student, teacher, counts)
    own, given = student.albert.encoder, encoder.encoder
    (shared,) = own.feed_forward
    mean = torch.stack([block.output.weight for block in given.feed_forward]).mean(0)
    torch.testing.assert_close(shared.output.weight.data, mean)
    for mine, theirs in zip(own.attention, given.attention, strict=True):
        assert torch.equal(mine.dense.weight, theirs.dense.weight)
    ids = torch.arange(VOCABULARY)[:, None]
    near = cosine_similarity(student.albert.embeddings(ids, None, None), encoder.embeddings(ids, None, None), dim=-1)
    assert near[counts > 0].mean() > near[counts == 0].mean() + 0.02


def test_a_teacher_of_another_width_is_projected_and_is_no_part_of_the_model():
    loss = [f"{name}=1" for name in PARTS if name != "attention"]
    teacher = make_teacher(loss, hidden_size=48, embedding_size=48, intermediate_size=64)
    student = make_student(teacher, hidden_size=32, num_attention_heads=4, intermediate_size=48)
    before = {name: tensor.clone() for name, tensor in student.state_dict().items()}
    start_as_teacher(student, teacher, torch.ones(VOCABULARY))
    kept = {name for name, tensor in student.state_dict().items() if tensor.equal(before[name])}
    assert "albert.encoder.attention.0.dense.weight" not in kept
    assert "albert.encoder.feed_forward.0.output.weight" in kept  # the inner widths differ
    directions = principal_directions(teacher.encoder(), 32)
    torch.testing.assert_close(directions @ directions.T, torch.eye(32), rtol=0, atol=1e-4)
    found = student(**tensors(read_batch())).distances._asdict()
    assert all(value.isfinite() and value > 0 for name, value in found.items() if name != "attention")
    assert student.state_dict().keys() == AlbertForPreTraining(student.config).state_dict().keys()


@pytest.fixture
def taught(words, corpus, tmp_path):
    """A command line with a teacher, whose architecture the student has."""
    directory = trained_models.export(tmp_path / "teacher", corpus.vocabulary, hidden_dropout_prob=0.1)
    return {name: word for name, word in words.items() if name != "--model"} | {"--teacher": str(directory)}


def test_the_student_has_the_sizes_and_the_sharing_of_the_teacher_and_reads_its_text_unmasked(taught):
    config = make_teacher(parameter_sharing="all", num_hidden_groups=2).student_config()
    assert (config.parameter_sharing, config.num_hidden_groups) == ("all", 2)
    settings = resolve(taught | {"--model-args": "num_hidden_layers=3"})
    assert (settings.model.num_hidden_layers, settings.model.hidden_size) == (3, 32)
    assert settings.model.hidden_dropout_prob == 0.0
    assert (settings.masking.replace_with_mask, settings.masking.replace_with_random) == (0.0, 0.0)
    other = resolve(taught | {"--teacher-loss": ["states=2"]})
    assert other.distilled != settings.distilled
    for flags, noted in ({}, 0), ({"--max-ngram": "1"}, 1):
        run = Distillation(resolve(taught | flags), None, None, None, make_teacher())
        assert sum("the flags of masks change nothing" in line for line in run.subject(None)) == noted


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"--teacher-loss": "state=1"}, "'state=1'.*the parts are states"),
        ({"--teacher-loss": ["states=1", "states=2"]}, "each part once"),
        ({"--teacher-loss": "states=nan"}, "PART=WEIGHT"),
        ({"--teacher-loss": "states=0"}, "asks nothing of the teacher"),
        ({"--teacher-loss": "attention=1", "--model-args": "num_attention_heads=2"}, "teacher has 4 of 8 .* 2 of 16"),
        ({"--teacher-loss": "pooled=2", "--teacher": None, "--model": "albert-tiny"}, "--teacher DIR"),
    ],
)
def test_what_is_wrong_with_the_flags_is_said(taught, flags, message):
    given = {flag: value for flag, value in (taught | flags).items() if value is not None}
    with pytest.raises(UserError, match=message):
        resolve(given)


def test_a_teacher_of_other_shards_is_refused(taught, corpus, tmp_path):
    other = tmp_path / "other.model"
    proto = sentencepiece_model_pb2.ModelProto.FromString(corpus.vocabulary.read_bytes())
    proto.pieces[-1].piece = "zzz"
    other.write_bytes(proto.SerializeToString())
    assert len(load_vocabulary(other)) == len(load_vocabulary(corpus.vocabulary))
    with pytest.raises(UserError, match=r"--teacher .* have different vocabularies"):
        resolve(taught | {"--teacher": str(trained_models.export(tmp_path / "second", other))})


@pytest.mark.parametrize("noise", [0.0, 1e-7])
def test_the_embeddings_fit_where_a_layer_norm_leaves_out_a_dimension(noise):
    """Rounding decides nothing: where it leaves a trace of the dimension, the fit is the same."""
    torch.manual_seed(0)
    inputs = torch.nn.functional.layer_norm(torch.randn(500, 8), (8,)).double()  # (N, I), the rows sum to 0
    wanted, weights = torch.randn(500, 3).double(), torch.rand(500).double() * 1e3 + 1.0
    found = distillation._fit_linear(inputs + noise * torch.randn(500, 8), wanted, weights)
    root = weights.sqrt()[:, None]
    best = torch.linalg.lstsq(root * (inputs - inputs.mean(1, keepdim=True)), root * wanted, driver="gelsd").solution
    torch.testing.assert_close(found, best, rtol=0, atol=1e-6)


def test_directions_without_words_are_the_first_axes():
    config = AlbertConfig.preset(
        "albert-tiny", hidden_size=8, embedding_size=2, num_attention_heads=2, vocab_size=40, initial_attention="random"
    )
    torch.manual_seed(0)
    encoder = AlbertModel(config)
    encoder.embeddings.projection.weight.data[4:] = 0.0  # two dimensions with words, in the first four axes
    encoder.embeddings.projection.bias.data[:] = 0.0
    found = principal_directions(encoder, 6)
    torch.testing.assert_close(found @ found.T, torch.eye(6), rtol=0, atol=1e-6)
    assert found.gather(1, found.abs().argmax(1, keepdim=True)).min() > 0
    words = encoder.embeddings.projection(encoder.embeddings.word_embeddings.weight).detach()
    torch.testing.assert_close(words @ found[:2].T @ found[:2], words, rtol=0, atol=1e-6)
    torch.testing.assert_close(found[4:], torch.eye(8)[4:6], rtol=0, atol=1e-6)
