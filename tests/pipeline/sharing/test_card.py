"""The model card and `export`: figures of the records, a header for the hub, code that runs; which checkpoints."""

import dataclasses
import json
import re
import shutil

import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from sentencepiece import sentencepiece_model_pb2

from data_prep.text.load_vocabulary import load_vocabulary
from data_prep.text.tokenizer_json import tokenizer_files
from model import AlbertForPreTraining, huggingface
from pipeline import export
from pipeline.checkpoint.files import load_weights
from pipeline.checkpoint.initial_weights import find_initial_model
from pipeline.checkpoint.retention import tag_name
from pipeline.settings.run_settings import Branch, Distilled
from pipeline.settings.settings_file import read_settings
from pipeline.sharing.write_export import export_run
from tests.docs.pages import REPOSITORY, commands_of, module_command
from tests.pipeline.records import write
from tests.pipeline.sharing import runs


@pytest.fixture(scope="module")
def made(corpus, tmp_path_factory):
    """Runs: `run` with records, `apart` that shares one part, fine-tuned ones of some tasks."""
    root = tmp_path_factory.mktemp("made")
    run = runs.pretraining(root / "run", corpus.vocabulary, (1, 2, 3), recorded=runs.RECORDED)
    other = {"second/mlm_loss": 5.5, "second/mlm_accuracy": 0.5, "second/predictions": 10}
    runs.metrics(run, {1: 6.0, 2: 4.0, 3: 5.0}, **other)

    shared = runs.config_of(num_hidden_layers=2, parameter_sharing="attention")
    runs.pretraining(root / "apart", corpus.vocabulary, (1,), shared)
    for task in ("rte", "sst2", "stsb", "squad1", "squad2", "race"):
        runs.finetuning(root / task, corpus.vocabulary, task, pretraining=read_settings(run))
    return root


def exported(made, name, out, *words):
    assert export.main(["--run", str(made / name), "--out", str(out), *words]) == 0
    return (out / "README.md").read_text(encoding="utf-8")


def rows_of(card, section):
    """The rows of the table in a section, as lists of cells."""
    part = re.search(rf"^## {section}\n(.*?)(?=^## |\Z)", card, re.DOTALL | re.MULTILINE)[1]
    lines = [line for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]


def test_its_figures_are_those_of_the_records(made, tmp_path):
    card = exported(made, "run", tmp_path / "out", "--step", "2")
    assert "step 2 of 3 of a pre-training run" in card
    sources = r"en\|wiki (wikipedia, 1,234 documents, 98,765 bytes)"
    (row,) = rows_of(card, "Training data")
    assert row == ["wikipedia", sources, "1,234", "56,789", "321 of 64 positions", "100 %"]
    recipe = dict(rows_of(card, "Recipe"))
    assert (recipe["objective"], recipe["train batch size"], recipe["steps"]) == ("sop", "4", "3")
    assert recipe["optimizer"] == r"type: Lamb, params: lr: 0.00176, weight\_decay: 0.01"
    assert (recipe["precision"], recipe["ZeRO"], recipe["seed"]) == ("bf16", "stage: 1", "7")
    assert recipe["warmup steps"] == "1"
    assert not {"scheduler", "initial weights"} & set(recipe)
    evaluation = {name.replace("\\", ""): float(value) for name, value in rows_of(card, "Evaluation")}
    assert evaluation == {
        "mlm_loss": 3.5, "mlm_accuracy": 0.25, "mlm_unigram_entropy": 6.0, "sop_accuracy": 0.6,
        "sop_accuracy_low": 0.49, "sop_accuracy_high": 0.7, "second/mlm_loss": 5.5, "second/mlm_accuracy": 0.5,
    }  # fmt: skip
    assert dict(rows_of(card, "Cost")) == {
        "time": "2 min 0 s until step 2, over all starts",
        "tokens read": "2,000",
        "ranks and machine of the last start": "2 of NVIDIA H200",
    }


@pytest.mark.parametrize(("name", "tag"), [("run", "fill-mask"), ("rte", "text-classification")])
def test_the_header_is_what_the_hub_reads(made, tmp_path, name, tag):
    text = exported(made, name, tmp_path / "out", "--license", "cc-by-4.0", "--language", "en", "no")
    assert ModelCard(text).data.to_dict() == {
        "license": "cc-by-4.0",
        "language": ["en", "no"],
        "library_name": "transformers",
        "pipeline_tag": tag,
        "tags": ["albert", *([] if name == "run" else [name])],
    }


def test_the_weights_it_began_with_and_the_vocabulary(corpus, tmp_path):
    proto = sentencepiece_model_pb2.ModelProto.FromString(corpus.vocabulary.read_bytes())
    proto.normalizer_spec.name = "identity+case"
    (tmp_path / "v.model").write_bytes(proto.SerializeToString())
    runs.pretraining(tmp_path / "run", tmp_path / "v.model", recorded={"init": "/home/me/base"})
    card = exported(tmp_path, "run", tmp_path / "out")
    assert dict(rows_of(card, "Recipe"))["initial weights"] == "base"
    assert "/home" not in card
    vocabulary = dict(rows_of(card, "Model"))["vocabulary"]
    assert vocabulary == "200 SentencePiece pieces, upper and lower case, no accents"


def test_a_branch_and_a_student_say_where_they_come_from(corpus, tmp_path):
    branch = Branch(run="/home/me/base", step=30, shift=0)
    runs.pretraining(tmp_path / "branch", corpus.vocabulary, (31,), recorded={"branch": branch, "steps": 31})
    assert dict(rows_of(exported(tmp_path, "branch", tmp_path / "a"), "Recipe"))["goes on from"] == "step 30 of base"
    distilled = Distilled(weights="", loss={"relations": 1.0})
    run = runs.pretraining(
        tmp_path / "student", corpus.vocabulary, recorded={"distilled": distilled, "teacher": "x/bert"}
    )
    runs.metrics(run, {1: 6.0}, distil_relations=0.25)
    card = exported(tmp_path, "student", tmp_path / "b")
    recipe = dict(rows_of(card, "Recipe"))
    assert (recipe["teacher"], recipe["loss"]) == ("bert", "relations: 1")
    assert not {"objective", "masking"} & recipe.keys()
    assert ["distil\\_relations", "0.25"] in rows_of(card, "Evaluation")
    assert "pipeline_tag: feature-extraction\n" in card, "its masked-token head may be random"
    assert 'albert.load(".").embed(' in card
    assert "fill-mask" not in card
    assert "`distil_` names a distance from its teacher" in card
    runs.pretraining(tmp_path / "old", corpus.vocabulary, recorded={"distilled": distilled})  # named no teacher
    assert "teacher" not in dict(rows_of(exported(tmp_path, "old", tmp_path / "c"), "Recipe"))


@pytest.mark.parametrize(("task", "metric"), [("rte", "accuracy"), ("squad1", "f1")])
def test_a_fine_tuned_model_has_its_metrics_and_its_pre_training(made, tmp_path, task, metric):
    card = exported(made, task, tmp_path / "out")
    ((name, value),) = rows_of(card, "Evaluation")
    assert name == f"{metric}, dev"
    assert re.fullmatch(r"75\.0 \(5\d\.\d to \d\d\.\d\) % of 20 examples", value)
    assert dict(rows_of(card, "Recipe"))["task"] == task
    assert rows_of(card, "Pre-training data")[0][0] == "wikipedia"
    assert dict(rows_of(card, "Pre-training recipe"))["optimizer"].startswith("type: Lamb")


def test_the_metrics_of_a_step_that_is_not_the_best_are_those_of_metrics_jsonl(corpus, tmp_path):
    run = runs.finetuning(tmp_path / "run", corpus.vocabulary, "squad1", step=5)
    lines = [{"step": step, "split": "eval", "f1": 70.0 + step, "exact": 60.0, "seconds": 1.0} for step in (4, 5)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    runs.checkpoint(run, 4, load_weights(run / "checkpoints" / tag_name(5)))
    card = exported(tmp_path, "run", tmp_path / "out", "--step", "4")
    assert rows_of(card, "Evaluation") == [["f1", "74"], ["exact", "60"]]


def test_the_pre_training_is_that_of_the_first_start(corpus, tmp_path):
    """The run that --init named may go on with other settings, or be deleted."""
    before = runs.pretraining(tmp_path / "run", corpus.vocabulary, recorded=runs.RECORDED)
    files = tokenizer_files(load_vocabulary(corpus.vocabulary), 128)
    huggingface.save(AlbertForPreTraining(runs.config_of()), before / "export", files)
    for number, init in enumerate((before, before / "export", tmp_path / "0")):
        record = find_initial_model(init, [tmp_path / "new"]).pretraining
        tuned = runs.finetuning(tmp_path / str(number), corpus.vocabulary, pretraining=record)
        export_run(tuned, tuned / "export")
    settings = read_settings(before)
    write(before, dataclasses.replace(settings, flags=dataclasses.replace(settings.flags, seed=8)))
    for number in range(3):
        card = exported(tmp_path, str(number), tmp_path / "out" / str(number))
        assert dict(rows_of(card, "Pre-training recipe"))["seed"] == "7"
    assert find_initial_model(before, [tmp_path / "0"]).pretraining.flags.seed == 7  # a later start keeps it


@pytest.mark.slow
@pytest.mark.parametrize("name", ["run", "apart", "rte", "sst2", "stsb", "squad2", "race"])
@pytest.mark.filterwarnings("ignore")  # of transformers
def test_its_code_runs_in_its_directory(made, tmp_path, monkeypatch, capsys, name):
    (code,) = re.findall(r"```python\n(.*?)```", exported(made, name, tmp_path / "out"), re.DOTALL)
    monkeypatch.chdir(tmp_path / "out")
    capsys.readouterr()
    exec(compile(code, "card", "exec"), {})
    said = capsys.readouterr().out
    assert said.strip()
    assert name != "rte" or "entailment" in said


def test_text_of_the_records_is_only_text(corpus, tmp_path):
    """A name in the records can neither end a table nor open HTML or a heading."""
    evil = runs.RECORDED | {
        "device": "a | b\n\n# heading <script>\x1b[2J\u2066",
        "corpora": (dataclasses.replace(runs.CORPUS, name="`x`]\n---\nlicense: mit"),),
    }
    runs.pretraining(tmp_path / "run", corpus.vocabulary, (1,), recorded=evil)
    card = exported(tmp_path, "run", tmp_path / "out")
    assert "<script>" not in card.replace(r"\<script\>", "")
    assert "\n# heading" not in card
    assert "\\x1b" in card
    assert "\\u2066" in card
    assert not re.findall("[\x00-\x09\x0b-\x1f\u202a-\u202e\u2066-\u2069]", card)
    assert ModelCard(card).data.to_dict()["license"] == "other"
    assert rows_of(card, "Cost")[-1][1] == r"2 of a \| b \# heading \<script\>\x1b\[2J\u2066"


def test_data_sets_of_the_hub_are_named_and_the_languages_of_the_text(corpus, tmp_path):
    for name, on_hub, expected in (("a", True, ["nyu-mll/glue"]), ("b", False, None)):
        runs.finetuning(tmp_path / name, corpus.vocabulary, data="nyu-mll/glue", data_on_hub=on_hub)
        assert ModelCard(exported(tmp_path, name, tmp_path / f"{name}-out")).data.to_dict().get("datasets") == expected
    corpora = [dataclasses.replace(runs.CORPUS, name=codes, language=codes) for codes in ("de,en", "de")]
    for name, given, expected in (("known", corpora, ["de", "en"]), ("older", [runs.CORPUS], None)):
        runs.pretraining(tmp_path / name, corpus.vocabulary, (1,), recorded={"corpora": given})
        assert ModelCard(exported(tmp_path, name, tmp_path / "out" / name)).data.to_dict().get("language") == expected
        words = ("--language", "fr")
        assert ModelCard(exported(tmp_path, name, tmp_path / "fr" / name, *words)).data.to_dict()["language"] == ["fr"]


@pytest.mark.parametrize("name", ["seconds", "tokens"])
def test_a_record_that_lacks_a_figure_is_one_line(corpus, tmp_path, refusal, name):
    run = runs.pretraining(tmp_path / "run", corpus.vocabulary, (1,), recorded=runs.RECORDED)
    file = runs.metrics(run, {1: 6.0}) / "metrics.jsonl"
    assert f'"{name}"' in file.read_text()
    file.write_text(file.read_text().replace(f'"{name}"', '"other"'))
    said = refusal(export.main, "--run", run, "--out", tmp_path / "out")
    assert f"metrics.jsonl lacks {name!r} where it is needed; restore it" in said


PAGE = REPOSITORY / "docs" / "python.md"
NAME = "albert.embeddings.word_embeddings.weight"


@pytest.fixture
def run(corpus, tmp_path):
    """A run with checkpoints of steps 2, 4 and 8; that of step 4 has the lowest loss, that of step 6 was deleted."""
    directory = runs.pretraining(tmp_path / "run", corpus.vocabulary, (2, 4, 8))
    return runs.metrics(directory, {2: 6.0, 4: 4.0, 6: 3.0, 8: 5.0})


@pytest.mark.parametrize(("words", "step"), [((), 8), (("--step", "2"), 2)])
def test_one_checkpoint(run, tmp_path, capsys, words, step):
    assert export.main(["--run", str(run), "--out", str(tmp_path / "out"), *words]) == 0
    found = load_file(tmp_path / "out" / "model.safetensors")[NAME]
    tags = (run / "checkpoints").glob("step-*")
    assert [tag.name for tag in tags if torch.equal(load_weights(tag)[NAME], found)] == [f"step-{step:08d}"]
    assert capsys.readouterr().out == f"wrote {tmp_path / 'out'} in the Hugging Face layout\n"


def test_a_step_that_is_not_there_and_what_may_not_be_replaced_before_any_work(run, tmp_path, refusal):
    told = refusal(export.main, "--run", run, "--out", tmp_path / "out", "--step", 6)
    assert "no checkpoint of step 6; its steps: 2, 4, 8" in told
    told = refusal(export.main, "--run", tmp_path / "none", "--out", tmp_path / "out", "--step", 6)
    assert "holds no run" in told
    assert not (tmp_path / "out").exists()
    shutil.rmtree(run / "checkpoints")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "mine.txt").write_text("mine")
    assert "mine is not empty" in refusal(export.main, "--run", run, "--out", tmp_path / "mine")


@pytest.mark.parametrize("place", [".", "..", "checkpoints", "checkpoints/new"])
def test_an_export_never_takes_the_place_of_its_run(run, refusal, place):
    said = refusal(export.main, "--run", run, "--out", run / place)
    assert "holds the run or is one of its checkpoints" in said
    assert (run / "settings.json").exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
def test_the_page_does_what_it_says(corpus, tmp_path, monkeypatch, refusal):
    runs.metrics(runs.pretraining(tmp_path / "runs" / "mine", corpus.vocabulary, (500, 1000)), {500: 5.0, 1000: 4.0})
    monkeypatch.chdir(tmp_path)
    commands = [module_command(command) for _, command in commands_of(PAGE) if module_command(command)]
    assert len(commands) == 1
    for module, words in commands:
        assert module == "pipeline.export"
        assert export.main(words) == 0

    page = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*?`) \|", page.split("## What is written")[1], re.MULTILINE)
    files = {name for row in rows for name in re.findall("`(.*?)`", row)}
    written = {path.name for path in (tmp_path / "my-albert").iterdir()}
    assert written <= files

    shown = next(line.strip() for line in page.splitlines() if line.startswith("    error: "))
    assert refusal(export.main, "--run", "runs/mine", "--out", "other", "--step", "300").strip() == shown
