"""Settings from command line, JSON and data; corpora and their weights; and the message of every mistake."""

import fcntl
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from common.errors import UserError
from data_prep.format.shard_manifest import ShardCounts
from data_prep.format.shards import open_shards
from model import AlbertConfig, ExecutionOptions
from pipeline.checkpoint import run_directory
from pipeline.data.masking import MaskingSettings
from pipeline.engine.hardware import Hardware
from pipeline.pretraining import corpora as resolving
from pipeline.pretraining.corpora import Corpora
from pipeline.pretraining.pretrain_settings import architecture, make_task
from pipeline.settings import pretrain_flags
from tests.pipeline.conftest import run
from tests.pipeline.pretraining.command_lines import CONFIG, GPU, line, resolve, resolve_flags
from tests.pipeline.records import write

CPU = Hardware("CPU", fp16=False, bf16=True)


def test_the_model_follows_the_data(words):
    found = resolve(words)
    assert (found.model.vocab_size, found.model.max_position_embeddings) == (200, 64)
    assert (found.engine.micro_batch_size, found.engine.accumulation_steps) == (2, 2)
    assert found.objective == "sop"
    assert found.steps == 125_000 * 4096 // 8


@pytest.mark.parametrize(
    ("flags", "field", "value"),
    [
        ({"--objective": "mlm"}, "sentence_head", None),
        ({"--objective": "nsp"}, "sentence_head", "nsp"),
        ({"--model": "bert-base"}, "sentence_head", "nsp"),
        ({"--model-args": "hidden_dropout_prob=0.1"}, "hidden_dropout_prob", 0.1),
        ({"--model-args": "embedding_projection=False"}, "embedding_projection", False),
        ({"--model-args": "parameter_sharing=attention"}, "parameter_sharing", "attention"),
    ],
)
def test_flags_say_what_the_model_is_and_fields_are_typed_by_name(words, flags, field, value):
    found = resolve(words | flags)
    assert getattr(found.model, field) == value
    assert found.objective == (found.model.sentence_head or "mlm")


def test_flags_say_how_the_model_runs(words):
    assert resolve(words, hardware=CPU).execution == ExecutionOptions()
    words |= {"--activation-checkpointing": "layer", "--compile": None, "--attention": "masked"}
    words |= {"--chunked-loss": None}
    expected = ExecutionOptions("layer", compile=True, attention="masked", chunked_loss=True)
    assert resolve(words, hardware=CPU).execution == expected


@pytest.mark.parametrize(
    ("more", "hardware", "message"),
    [
        ({"--attention": "flash"}, CPU, "needs a GPU"),
        ({"--attention": "flash"}, GPU, "16 bits"),  # the JSON asks for fp32
        ({"--attention": "sequences", "--compile": None}, GPU, "compiled"),
    ],
)
def test_a_kernel_that_cannot_do_what_is_asked_is_refused(words, more, hardware, message):
    with pytest.raises(UserError, match=message):
        resolve(words | more, hardware=hardware)


def test_compile_needs_a_compiler_and_a_stage_below_3(words, monkeypatch, tmp_path):
    assert resolve(words | {"--compile": None}, hardware=GPU).execution.compile
    monkeypatch.setattr("pipeline.pretraining.pretrain_settings.missing_for_compilation", lambda: "it needs gcc")
    with pytest.raises(UserError, match="--compile: it needs gcc; install"):
        resolve(words | {"--compile": None}, hardware=GPU)
    assert not resolve(words | {"--compile": "off"}, hardware=GPU).execution.compile
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"zero_optimization": {"stage": 3}}))
    with pytest.raises(UserError, match=r"--compile does not work at ZeRO stage 3.*drop it"):
        resolve(words | {"--compile": None}, hardware=GPU)


def test_a_gpu_has_the_features_that_it_can_run(words, tmp_path):
    known = ExecutionOptions(chunked_loss=True)
    assert resolve(words, hardware=GPU).execution == known
    assert resolve(words, hardware=replace(GPU, compiles=True)).execution == replace(known, compile=True)
    off = {"--compile": "off", "--chunked-loss": "off"}
    assert resolve(words | off, hardware=replace(GPU, compiles=True)).execution == ExecutionOptions()
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"zero_optimization": {"stage": 3}}))
    at_stage_3 = resolve(words, hardware=replace(GPU, compiles=True)).execution
    assert at_stage_3 == ExecutionOptions(chunked_loss=True)


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ("", "give --model NAME for a new model, or --init DIR"),
        ("--init a --branch b", "--init and --branch both"),
        ("--model albert-base --teacher-loss states=1", "give it with --teacher DIR"),
    ],
)
def test_what_a_run_starts_from_is_named_once(more, text):
    with pytest.raises(UserError, match=text):
        pretrain_flags.parse(["--data", "x", "--output", "y", "--deepspeed_config", "z", *more.split()])


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"--model": "albert-tony"}, "albert-tiny"),
        ({"--model-args": "embeding_size=64"}, "embedding_size"),
        ({"--model-args": "embedding_projection=no"}, "true or false"),
        ({"--model-args": "vocab_size=30000"}, "vocab_size 30000 is not the 200"),
        ({"--model-args": "max_position_embeddings=32"}, "max_position_embeddings 32 is less"),
        ({"--model-args": "type_vocab_size=1"}, "two segments"),
        ({"--model-args": "sentence_head=nsp"}, "use --objective"),
        ({"--data": "nowhere"}, "nowhere"),
        ({"--data": ["a:1", "b"]}, "some directories have a weight"),
        ({"--data": ["a:1", "b:0"]}, "a weight is above 0"),
        ({"--data": ["a:1", "b:much"]}, "'much' is not a weight"),
        ({"--data": ["a", "b/../a"]}, "names a directory twice"),
    ],
)
def test_a_mistake_is_one_line_with_its_remedy(words, change, text):
    with pytest.raises(UserError, match=text):
        resolve(words | change)


def test_model_args_given_again_add_to_the_first(words):
    more = ["--model-args", "hidden_size=32", "--model-args", "num_attention_heads=4"]
    model = resolve_flags(pretrain_flags.parse([*line(words), *more]), 2, GPU).model
    assert (model.hidden_size, model.num_attention_heads) == (32, 4)


MANY_FLAGS = {
    "--steps": "100", "--mask-replacement": "0.7,0.2,0.1", "--max-hours": "3", "--eval-batches": "2", "--seed": "3",
    "--skip-batches": "5-6", "--model-args": "hidden_size=64", "--compile": "off",
}  # fmt: skip


def test_what_decides_the_results_may_not_change(words, second):
    found = resolve(words | MANY_FLAGS)
    output = found.flags.output
    write(output, found)
    run_directory.check_same_settings(resolve(words | MANY_FLAGS))
    for flag, value, message in (
        ("--seed", "4", "seed: 3 -> 4"),
        ("--max-hours", "2", "max_hours: "),
        ("--eval-batches", "3", "eval_batches: "),
        ("--warmup-steps", "4", "warmup_steps: "),
        ("--model-args", "hidden_size=32", r"model\.hidden_size: 64 -> 32"),
        ("--model-args", "hidden_act=gelu", r"model\.hidden_act: gelu_new -> gelu"),
        ("--mask-probability", "0.2", r"masking\.mask_probability: 0\.15 -> 0\.2"),
        ("--deterministic", None, "deterministic: False -> True"),
    ):
        other = resolve(words | MANY_FLAGS | {flag: value})
        with pytest.raises(UserError, match=message):
            run_directory.check_same_settings(other)
    manifest = second / "manifest.json"
    manifest.write_text(manifest.read_text() + "\n")  # another digest
    with pytest.raises(UserError, match=r"a run with other settings \(other shards in --data\)"):
        run_directory.check_same_settings(resolve(words | MANY_FLAGS | {"--data": str(second)}))


def test_an_output_that_cannot_be_made_is_refused_before_anything_is_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="--output"):
        run_directory.check_output(tmp_path / "file" / "run")
    run_directory.check_output(tmp_path / "new" / "run")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("name", ["checkpoints", "metrics.jsonl", "export", "done", "results.json"])
def test_files_that_no_run_wrote_are_refused(tmp_path, name):
    (tmp_path / name).write_text("")
    with pytest.raises(UserError, match=f"holds {name} and no settings.json"):
        run_directory.check_output(tmp_path)


MASKS = {"--mask-probability": "0.3", "--max-ngram": "1", "--mask-replacement": "0.5,0.2,0.3"}


def test_masks_of_the_flags_are_trained_on_and_the_paper_s_are_evaluated_on(words, corpus):
    assert resolve(words).masking == MaskingSettings()
    found = resolve(words | MASKS)
    assert found.masking == MaskingSettings(0.3, 1, 0.5, 0.2)
    task = make_task(pretrain_flags.parse(line(words | MASKS | {"--verify": "never"})), 2, GPU)
    task.open(SimpleNamespace(all_or_raise=lambda check: None))
    assert [collator.masking for collator in task.training.collators] == [found.masking]
    assert [collator.masking for collator in task.held_out.values()] == [MaskingSettings()]


def test_a_trained_model_of_one_segment_type_is_refused():
    manifest = SimpleNamespace(max_seq_length=64, vocabulary_size=200)
    flags = pretrain_flags.parse(["--init", "old", "--data", "x", "--output", "y", "--deepspeed_config", "z"])
    with pytest.raises(UserError, match="two segments; name another model than --init old"):
        architecture(flags, manifest, SimpleNamespace(config=AlbertConfig(type_vocab_size=1)), None, None)
    flags = pretrain_flags.parse(["--teacher", "old", "--data", "x", "--output", "y", "--deepspeed_config", "z"])
    teacher = SimpleNamespace(student_config=lambda: AlbertConfig(type_vocab_size=1))
    with pytest.raises(UserError, match="two segments; name another model than --teacher old"):
        architecture(flags, manifest, None, teacher, None)


@pytest.mark.slow
def test_a_run_that_is_being_trained_is_left_alone(words, tmp_path):
    output = tmp_path / "run"
    output.mkdir()
    with (output / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        print("node7", 4321, file=held, flush=True)  # as the rank 0 of another host does
        result = run(sys.executable, "-m", "pipeline.pretrain", *line(words), status=2)
    assert f"another process is writing to {output} (process 4321 on host node7); wait for it" in result.stderr
    assert [path.name for path in output.iterdir()] == [".lock"]


def test_several_corpora_have_weights_or_the_share_of_their_rows(words, corpus, second):
    alone = resolve(words)
    assert (alone.data, alone.corpus_weights) == ((corpus.train,), (1,))
    mixed = resolve(words | {"--data": [f"{corpus.train}:0.75", f"{second}:1/4"]})
    assert (mixed.data, mixed.corpus_weights) == ((corpus.train, second), (3, 1))
    assert (mixed.data_digests[0], mixed.corpus_weights[0]) == (*alone.data_digests, 3)
    rows = [len(open_shards(directory)) for directory in mixed.data]
    by_rows = resolve(words | {"--data": [str(corpus.train), str(second)]}).corpus_weights
    assert by_rows[0] * rows[1] == by_rows[1] * rows[0]


def test_a_colon_in_a_directory_s_name_is_no_weight(words, corpus, tmp_path):
    (tmp_path / "corpus:2").symlink_to(corpus.train)
    assert resolve(words | {"--data": str(tmp_path / "corpus:2")}).data == (tmp_path / "corpus:2",)


class Shards:
    """Shards of 100 rows, with the fields of their manifest."""

    def __init__(self, **fields: Any) -> None:
        usual = {"vocabulary_sha256": "v", "max_seq_length": 64, "split": "train", "documents_digest": "d"}
        usual |= {"sources": [{"directory": f"wiki{len(fields)}", "documents": 9}]}
        self.manifest = SimpleNamespace(**usual | fields)

    def __len__(self) -> int:
        return 100


@pytest.mark.parametrize(
    ("counts", "objective", "message"),
    [
        (ShardCounts(documents=200, pairs=200, pairs_without_b=200), "sop", "no pair has a second segment"),
        (ShardCounts(documents=200, pairs=200, pairs_without_b=200), "mlm", ""),
        (ShardCounts(documents=200, pairs=200, pairs_without_b=199), "sop", ""),
        (ShardCounts(documents=1, pairs=9), "nsp", "the text is one document"),
        (ShardCounts(documents=3, documents_left_out=1, duplicates_left_out=1, pairs=9), "nsp", "the text is one doc"),
        (ShardCounts(documents=2, pairs=9), "nsp", ""),
    ],
)
def test_a_sentence_loss_without_both_labels_is_said_at_the_start(counts, objective, message):
    """Its head would learn nothing, and its accuracy would be 100 % or missing."""
    assert resolving.describe_missing_labels([counts], objective).startswith(message)
    assert resolving.describe_missing_labels([counts, ShardCounts(documents=2, pairs=9)], objective) == ""


@pytest.mark.parametrize(
    ("second", "held_out", "message"),
    [
        ({}, {"documents_digest": "e", "sources": [{"directory": "wiki", "documents": 8}]}, None),
        ({}, {"documents_digest": "e", "split": "held_out"}, None),
        ({}, {"documents_digest": "e"}, "--eval-data third holds documents of --data second"),
        ({"vocabulary_sha256": "w"}, {}, "second was made with another vocabulary than first: second/vocab differs"),
        ({}, {"vocabulary_sha256": "w"}, "third was made with another vocabulary than first"),
        ({"max_seq_length": 32}, {}, "second has rows of 32 tokens, first of 64"),
        ({}, {"split": "held_out", "max_seq_length": 128}, "third has rows of 128 tokens, first of 64"),
        ({"split": "held_out"}, {}, "--data second holds held-out documents"),
        (
            {"documents_digest": "f"},
            {"documents_digest": "f", "sources": []},
            "--eval-data third holds documents of --data second",
        ),
    ],
)
def test_shards_that_do_not_go_together_are_refused(monkeypatch, second, held_out, message):
    monkeypatch.setattr(resolving, "find_vocabulary", lambda directory: directory / "vocab")
    monkeypatch.setattr(resolving, "open_shards", lambda directory: Shards(**held_out))
    corpora = Corpora((Path("first"), Path("second")), (Shards(), Shards(**second)), (1, 1))
    if message is None:
        corpora.check_together([Path("third")])
    else:
        with pytest.raises(UserError, match=message):
            corpora.check_together([Path("third")])


def test_too_few_rows_for_a_share_of_a_batch_are_refused():
    corpora = Corpora((Path("first"), Path("second")), (Shards(), Shards()), (1, 3))
    corpora.check_size(133)
    with pytest.raises(UserError, match="second holds 100 rows, fewer than its share of one batch, of 101"):
        corpora.check_size(134)
    with pytest.raises(UserError, match="first holds 100 rows, fewer than one batch of 101"):
        Corpora((Path("first"),), (Shards(),), (1,)).check_size(101)
