"""The student's page: a whole small distillation, from text to a search; it is not made twice."""

import json
from pathlib import Path

import pytest
import torch
import transformers
from scipy import stats

from benchmarks import student
from benchmarks.shared import commands
from tests.data_prep.corpora import make_sentences
from tests.pipeline.pretraining import trained_models
from tests.pipeline.tasks import task_files
from tests.pipeline.workers.forked import ForkedCommands


@torch.no_grad()
def stsb(model: Path, dev: Path) -> float:
    """The rank correlation of cosines and scores in percent, by `transformers` and `scipy`."""
    tokenizer, encoder = (auto.from_pretrained(model) for auto in (transformers.AutoTokenizer, transformers.AutoModel))
    encoder.eval()

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
