"""The study: what it finds and chooses, and a whole small one, stopped and resumed."""

import json
import lzma
import statistics
from pathlib import Path

import numpy as np
import pytest

from benchmarks.shared import commands
from benchmarks.study import __main__ as study
from benchmarks.study import finetune, page, text, training
from benchmarks.study.plan import CPU, DEEP, GPU, SMALL, Choice
from benchmarks.study.training import Evaluation, tokens_a_second
from pipeline.engine import deepspeed_config
from pipeline.engine.hardware import Hardware
from pipeline.tasks.kinds.logits import Logits
from pipeline.tasks.registry import find_task
from tests.data_prep.corpora import make_sentences
from tests.pipeline.tasks import task_files
from tests.pipeline.workers.forked import ForkedCommands


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A --data-root with books, records and tasks."""
    root = tmp_path_factory.mktemp("root")
    (root / "books" / "novels").mkdir(parents=True)
    (root / "wikipedia").mkdir()
    for number in range(40):
        sentences = make_sentences(60, seed=number)
        (root / "books" / "novels" / f"book{number}.txt").write_text("\n\n".join(sentences), encoding="utf-8")
    records = [{"text": " ".join(make_sentences(20, seed=1000 + number))} for number in range(60)]
    (root / "wikipedia" / "intros.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    (root / "corpus").mkdir()
    with lzma.open(root / "corpus" / "articles.jsonl.xz", "wt") as file:
        file.writelines(json.dumps({"text": " ".join(make_sentences(20, seed=2000 + n))}) + "\n" for n in range(60))
    (root / "blimp").mkdir()
    words = [sentence.split()[:4] for sentence in make_sentences(6, seed=5)]
    pairs = [{"good": " ".join(one), "bad": " ".join(reversed(one))} for one in words]
    (root / "blimp" / "order.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    task_files.write_all(root)
    (root / "glue").rename(root / "GLUE")  # as its archive has it
    return root


def test_the_interval_of_a_gain_covers_other_seeds(tmp_path):
    labels = np.arange(60) % 2
    right = (labels, labels, 1 - labels), (1 - labels,) * 3
    size = finetune.TaskSize(Path("data"), 60, 30.0, 10)  # 60 samples of 30 tokens
    pair = finetune.jobs_of(find_task("rte"), size, 1e9, CPU, Path("export"), tmp_path)
    for job, of_seeds in zip(pair, right, strict=True):
        for seed, predicted in enumerate(of_seeds):
            (job.out / f"seed-{seed}" / "logits").mkdir(parents=True)
            logits = np.eye(2, dtype=np.float32)[predicted]
            made = Logits(labels.astype(str) + np.arange(60).astype(str), logits, labels)
            made.save(job.out / f"seed-{seed}" / "logits" / "dev.npz")
    result = page.result_of(*pair)
    assert result.trained == pytest.approx(100 * 2 / 3)
    assert result.random == 0
    # All examples of a seed are alike, so only the seeds decide. Three equal draws of the last one have a part of 1/27.
    assert result.gain == pytest.approx((0, 100))
    assert result.settings == f"{pair[0].steps} steps, 8.1 epochs"


def last_evaluation(run: Path) -> float:
    """The MLM loss over all validation rows, by brute force."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    last = [row for row in rows if row["split"] == "eval"][-1]
    counted = [(last[name], last[name.removesuffix("mlm_loss") + "predictions"]) for name in last if "mlm_loss" in name]
    assert len(counted) == len(list((run.parents[1] / "shards" / "validation").iterdir())) > 1
    return sum(loss * count for loss, count in counted) / sum(count for _, count in counted)


def test_a_probe_that_did_not_end_finite_is_not_chosen():
    broken = []
    ended, also = [Evaluation(5, 9.0, 6.0), Evaluation(10, 5.0, 6.0)], [Evaluation(10, 5.0, 6.0)]
    infinite = [Evaluation(5, 4.0, 6.0), Evaluation(10, None, 6.0)]
    losses = [broken, infinite, ended, also]
    assert training.chosen({Choice("Lamb", 10.0**-n, "quick"): points for n, points in enumerate(losses)}).rate == 0.01


def test_the_speed_of_a_probe_is_without_its_evaluations(tmp_path):
    """10 and 30 tokens/s over as many tokens each; the first step compiles, and evaluations take 100 seconds."""
    records = [(100, 50.0, 2.0), (200, 160.0, 10.0), (300, 263.3, 30.0)]
    lines = [
        {"split": "train", "step": step, "tokens": tokens, "seconds": seconds, "tokens_per_second": speed}
        for step, (tokens, seconds, speed) in enumerate(records, 1)
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert tokens_a_second(tmp_path) == pytest.approx(15.0)


def test_the_table_of_the_probe_says_when_context_began_to_help():
    points = [(5, 6.5, 6.0), (10, 5.3, 6.0), (15, 5.1, 6.0)]
    table = page.probe_table({"left": points, "stands": points[:1], "broken": [*points, (20, None, 6.0)], "failed": []})
    assert [[cell.strip() for cell in line.split("|")[2:5]] for line in table.splitlines()[2:]] == [
        ["5.100", "15.0 %", "10"],
        ["6.500", "-8.3 %", "not reached"],
        ["not finite", "", "10"],
        ["not finite", "", "not reached"],
    ]


@pytest.mark.parametrize(("plan", "limits"), [(DEEP, ["--limit", "100"]), (GPU, [])])
def test_the_final_model_is_scored_on_as_many_pairs_as_the_plan_says(tmp_path, plan, limits):
    (scoring,) = training.Training(plan, (), tmp_path, ("python",), ("python",)).minimal_pairs(tmp_path / "pairs.jsonl")
    words = [*limits, "--run", str(tmp_path / "pretrain" / "export")]
    assert list(scoring.argv[scoring.argv.index("--pairs") + 2 :])[: len(words)] == words


def test_the_plan_of_a_gpu_is_fp16_with_lamb_and_sums_gradients_in_fp32(tmp_path):
    (tmp_path / "gpu.json").write_text(json.dumps(GPU.engine(GPU.choices[0], GPU.micro_batch)))
    config = deepspeed_config.load(tmp_path / "gpu.json")
    engine = deepspeed_config.fit(config, 1, Hardware("NVIDIA H100 80GB HBM3", fp16=True, bf16=True), "auto")
    assert (engine.precision, engine.zero_stage, engine.train_batch_size) == ("fp16", 1, 128)
    assert engine.json["optimizer"]["type"] == "Lamb"
    assert engine.json["data_types"]["grad_accum_dtype"] == engine.json["communication_data_type"] == "fp32"


@pytest.mark.slow
def test_a_whole_study_is_written_and_not_made_twice(root, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(commands, "subprocess", ForkedCommands)
    monkeypatch.setattr(text.shutil, "which", lambda name: None)  # no MPI: jobs are forked
    measured = []
    # A speed at which no limit of time is reached on any machine.
    monkeypatch.setattr(training, "tokens_a_second", lambda run: measured.append(run) or 5.0)
    words = ["--data-root", str(root), "--out", str(tmp_path / "study"), "--plan", "small", "--price", "2"]
    words += ["--ranks", "1", "--tasks", "rte"]
    assert study.main(words) == 0
    assert all(tokens_a_second(run) > 0 for run in measured)
    first = capsys.readouterr().out
    made = tmp_path / "study" / "page"
    assert {"study.md", "study.json", "curves.png"} <= {path.name for path in made.iterdir()}
    assert "| rte | accuracy |" in first
    record = json.loads((made / "study.json").read_text())
    (of_task,) = record["tasks"]
    assert of_task["gain"][0] <= of_task["trained"] - of_task["random"] <= of_task["gain"][1]
    # The means are those of the seeds' own results.
    (runs,) = (tmp_path / "study" / "runs" / "rte").iterdir()
    for start, shown in (("pre-trained", of_task["trained"]), ("random", of_task["random"])):
        results = [
            json.loads((runs / start / f"seed-{seed}" / "results.json").read_text()) for seed in range(SMALL.seeds)
        ]
        mean = statistics.fmean(result["metrics"]["dev"]["accuracy"] for result in results)
        assert shown == pytest.approx(100 * mean)
    # Each choice has its own optimizer and rate.
    for choice in SMALL.choices:
        settings = json.loads((tmp_path / "study" / "probe" / choice.name / "settings.json").read_text())
        assert settings["engine"]["optimizer"] == choice.optimizer
        assert settings["engine"]["learning_rate"] == choice.rate
        assert settings["model"]["initial_attention"] == ("random" if choice.start == "paper" else "neighbours")
        assert settings["model"]["initial_output_bias"] == ("frequencies" if choice.start == "quick" else "zeros")
    # The probe takes the lowest loss on text that is reported nowhere.
    evaluations = {name: last_evaluation(tmp_path / "study" / "probe" / name) for name in record["probe"]}
    assert {name: points[-1][1] for name, points in record["probe"].items()} == pytest.approx(evaluations)
    assert {len(points) for points in record["probe"].values()} == {SMALL.probe_evaluations}
    best = min(evaluations, key=evaluations.get)
    assert f"the probe chose {best}\n" in first
    assert ("it uses no context yet" in first) == (evaluations[best] >= record["probe"][best][-1][2])
    curves = dict(record["curves"])
    of_pairs = curves.pop("minimal pairs")
    assert set(curves) == {"intros", "books", "articles"}
    assert all(len(points) >= SMALL.evaluations for points in curves.values())
    # One milestone is reached, the other never; then the final model.
    assert len(of_pairs) == 2
    assert of_pairs[0]["tokens"] == pytest.approx(1000, rel=0.3)
    assert record["minimal_pairs"]["total"]["pairs"] == 6
    text_of_page = (made / "study.md").read_text()
    assert "dollars at 2 an hour" in text_of_page
    done = tmp_path / "study" / "pretrain" / "done"
    done.rename(tmp_path / "done")  # as if it had been stopped
    assert study.main([*words, "--minutes", "30"]) == 2
    assert "has a study of 60 minutes; give --minutes 60 until it is pre-trained" in capsys.readouterr().err
    (tmp_path / "done").rename(done)
    assert study.main(words) == 0
    again = capsys.readouterr().out
    assert again.count("done before") == first.count(" s\n")
    assert page.markdown(record) == (made / "study.md").read_text() == text_of_page
    assert again.endswith(f"{text_of_page}\n")
