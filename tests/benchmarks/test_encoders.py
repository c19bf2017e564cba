"""The pages of the encoders and of the student: their figures are right, both train, and nothing is made twice."""

import json
import os
from pathlib import Path

import pytest
import torch
import transformers
from scipy import stats

from benchmarks import encoders, student
from benchmarks.shared import commands
from common.errors import UserError
from pipeline.data import sampler
from pipeline.tasks.files import reading
from pipeline.tasks.registry import find_task
from pipeline.training.metrics_file import read_records
from tests.data_prep.corpora import make_sentences
from tests.pipeline.pretraining import trained_models
from tests.pipeline.pretraining.trained_models import export
from tests.pipeline.tasks import task_files
from tests.pipeline.workers import forked
from tests.pipeline.workers.forked import ForkedCommands


def write(path, args, score, speed, seconds):
    path.parent.mkdir(parents=True, exist_ok=True)
    part = {"settings": encoders.settings_of(args), "metrics": {"matthews": score, "accuracy": 0.5}}
    path.write_text(json.dumps(part | {"examples_per_second": speed, "processor_seconds": seconds}))


def test_the_page_has_means_and_median_ratios(tmp_path, capsys):
    work = tmp_path / "work"
    words = ["--init", "models/tiny", "--data", "none", "--out", str(work), "--publish", str(tmp_path / "page")]
    words += ["--tasks", "cola", "rte"]
    args = encoders.parser().parse_all(words)
    for seed, (score, speed, seconds) in enumerate(((0.25, 30.0, 10.0), (0.75, 80.0, 12.0))):
        write(work / "cola" / f"this-{seed}.json", args, score, speed, seconds)
    write(work / "cola" / "trainer-0.json", args, 0.5, 10.0, 25.0)
    encoders.publish(args)
    (row,) = [line for line in (tmp_path / "page.md").read_text().splitlines() if line.startswith("| cola")]
    # Two seeds: the half interval is t(0.975, 1) = 12.706 times 25 / sqrt(1), with a standard error of 25.
    cells = [cell.strip() for cell in row.split("|")[1:-1]]
    assert cells == ["cola", "matthews", "50.0 ± 317.7 (2)", "50.0 (1)", "", "-25.0 (1)", "2.50", "3.00"]
    (task,) = json.loads((tmp_path / "page.json").read_text())["tasks"]
    assert task["scores"]["this"] == {"matthews": [0.25, 0.75]}
    assert capsys.readouterr().out
    with pytest.raises(UserError, match="made with other settings"):
        encoders.publish(encoders.parser().parse_all([*words, "--precision", "bf16"]))


@pytest.mark.slow
def test_both_systems_train_and_a_second_command_makes_nothing_again(corpus, tmp_path, monkeypatch):
    """Each part is made in this process, and pipeline.finetune in a forked one. Trainer gets the same batches."""
    seen: list[float] = []  # labels that Trainer has trained on
    step = transformers.Trainer.training_step

    def see(self, model, inputs, *more):
        seen.extend(inputs["labels"].tolist())
        return step(self, model, inputs, *more)

    monkeypatch.setattr(transformers.Trainer, "training_step", see)

    def finetune(words, check):
        return forked.run_module(words[2], words[3:], Path.cwd(), os.environ | {"DS_ACCELERATOR": "cpu"}, timeout=1500)

    monkeypatch.setattr(encoders.subprocess, "run", finetune)
    monkeypatch.setattr(
        encoders, "_start", lambda args, words, *part: encoders.main([*words, "--part", *map(str, part)])
    )
    task_files.write_all(tmp_path)
    export(tmp_path / "init", corpus.vocabulary, num_hidden_layers=1, intermediate_size=32)
    words = ["--init", str(tmp_path / "init"), "--data", str(tmp_path / "glue"), "--out", str(tmp_path / "work")]
    words += ["--tasks", "stsb", "--seeds", "1", "--epochs", "1", "--max-length", "32"]
    left = tmp_path / "work" / "stsb" / "this-0"  # of an interrupted part, which begins anew
    left.mkdir(parents=True)
    (left / "settings.json").write_text("{")
    assert encoders.main(words) == 0
    train = reading.read(find_task("stsb"), str(tmp_path / "glue"))["train"]
    settings = json.loads((left / "settings.json").read_text())
    batches = [sampler.step_positions(step, 0, 1, 32, 32) for step in range(settings["steps"])]
    expected = [train[row].label for (batch,) in batches for row in sampler.rows_at(batch, len(train), seed=0)[1]]
    assert expected[:32] != [example.label for example in train[:32]], "the test has lost its power"
    assert seen == pytest.approx(expected)
    parts = {path.name: path.read_text() for path in (tmp_path / "work" / "stsb").glob("*.json")}
    assert parts.keys() == {"this-0.json", "trainer-0.json"}
    for content in map(json.loads, parts.values()):
        assert content["metrics"].keys() == {"pearson", "spearman"}
        assert content["examples_per_second"] > 0
    assert encoders.main(words) == 0
    assert {path.name: path.read_text() for path in (tmp_path / "work" / "stsb").glob("*.json")} == parts
    seen.clear()
    orders, predict = [], transformers.Trainer.predict

    def see_order(self, dataset):
        lengths = [len(row["input_ids"]) for row in dataset]
        orders.append((len(dataset), list(self._get_eval_sampler(dataset)) == list(range(len(dataset)))))
        assert lengths[0] < lengths[-1], "they are sorted by length"
        assert (len(self.train_dataset), self.args.dataloader_num_workers) == (len(train), 1)
        return predict(self, dataset)

    monkeypatch.setattr(transformers.Trainer, "predict", see_order)
    grouped = [*words, "--out", str(tmp_path / "grouped"), "--by-length", "--max-length", "64"]
    grouped += ["--part", "stsb", "trainer", "0"]
    assert encoders.main(grouped) == 0
    assert seen != pytest.approx(expected[: len(seen)])
    assert set(seen) <= set(torch.tensor([example.label for example in train]).tolist())
    part = json.loads((tmp_path / "grouped" / "stsb" / "trainer-0.json").read_text())
    splits = reading.read(find_task("stsb"), str(tmp_path / "glue"))
    assert (part["settings"]["batches"], orders) == (
        "by length",
        [(len(splits["test"]), True), (len(splits["dev"]), True)],
    )


@torch.no_grad()
def stsb(model: Path, dev: Path, **fields) -> float:
    """The rank correlation of cosines and scores in percent, by `transformers` and `scipy`."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    encoder = transformers.AutoModel.from_pretrained(model, **fields).eval()

    def vector(text: str) -> torch.Tensor:
        states = encoder(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]  # (S, H)
        return torch.nn.functional.normalize(states.mean(0), dim=0)

    rows = [line.split("\t") for line in dev.read_text(encoding="utf-8").splitlines()[1:]]
    cosines = [float(vector(first) @ vector(second)) for first, second, _ in rows]
    return 100 * float(stats.spearmanr(cosines, [float(score) for *_, score in rows]).statistic)


@pytest.mark.slow
def test_a_whole_student_is_made_once(corpus, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(commands, "subprocess", ForkedCommands)
    root, out = tmp_path / "root", tmp_path / "student"
    (root / "wikipedia").mkdir(parents=True)
    records = [{"text": " ".join(make_sentences(20, seed=number))} for number in range(60)]
    (root / "wikipedia" / "intros.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    task_files.write_all(root)
    teacher = trained_models.export(tmp_path / "teacher", corpus.vocabulary, max_position_embeddings=128)
    words = ["--out", str(out), "--data-root", str(root), "--teacher", str(teacher), "--steps", "4", "--ranks", "1"]
    assert student.main(words) in (None, 0)
    printed = capsys.readouterr().out
    assert printed.count(" | ") == 3
    assert "a search over" in printed
    page = json.loads((out / "page" / "student.json").read_text())
    expected = [stsb(model, root / "glue" / "STS-B" / "dev.tsv") for model in (teacher, out / "export")]
    assert [model["stsb"] for model in page["models"]] == pytest.approx(expected, abs=0.5)
    assert page["models"][0]["parameters"] > 0
    assert len(page["curves"]["intros"]) == 1
    assert {"curves.png", "student.md"} <= {path.name for path in (out / "page").iterdir()}
    sentences = (out / "sentences.jsonl").stat().st_mtime_ns
    done = (out / "run" / "done").stat().st_mtime_ns
    assert student.main(words) in (None, 0)
    assert (out / "run" / "done").stat().st_mtime_ns == done
    assert (out / "sentences.jsonl").stat().st_mtime_ns == sentences

    assert student.main([*words, "--baselines"]) in (None, 0)
    out = out / "baselines"
    assert max(record["learning_rate"] for record in read_records(out / "run", "train")) < 1e-11
    found = json.loads((out / "page" / "student.json").read_text())["models"]
    names = ["the teacher", "its first layers: 1", "the student before training"]
    assert [model["name"] for model in found] == names
    made = ((teacher, 2), (teacher, 1), (out / "export", 2))
    expected = [stsb(model, root / "glue" / "STS-B" / "dev.tsv", num_hidden_layers=layers) for model, layers in made]
    assert [model["stsb"] for model in found] == pytest.approx(expected, abs=0.5)
