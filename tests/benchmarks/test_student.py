"""The student's page: a whole small distillation, from text to a search; it is not made twice."""

import json
from pathlib import Path

import pytest

from benchmarks import student
from benchmarks.shared import commands
from tests.data_prep.corpora import make_sentences
from tests.pipeline.pretraining import trained_models
from tests.pipeline.tasks import task_files
from tests.pipeline.workers.forked import ForkedCommands


@pytest.mark.slow
def test_a_whole_student_is_made_once(
    corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
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
    assert [round(one["stsb"], 3) for one in page["models"]] != [0, 0]
    assert page["models"][0]["parameters"] > 0
    assert len(page["curves"]["intros"]) == 1
    assert {"curves.png", "student.md"} <= {path.name for path in (out / "page").iterdir()}
    sentences = (out / "sentences.jsonl").stat().st_mtime_ns
    done = (out / "run" / "done").stat().st_mtime_ns
    assert student.main(words) in (None, 0)
    assert (out / "run" / "done").stat().st_mtime_ns == done
    assert (out / "sentences.jsonl").stat().st_mtime_ns == sentences
