"""The paper's claims in small: what differs between their sides, the order of their runs, and their page."""

import dataclasses
import json
import re

import pytest

from common.errors import UserError
from data_prep.__main__ import main as data_prep
from model import AlbertConfig
from model.counts import parameter_counts
from pipeline import evaluate, reproduce
from pipeline.engine import config as engine_config
from pipeline.paper import claims, runner
from pipeline.paper.claims import (
    CLAIMS,
    LEARNING_RATE,
    PRESET,
    SIDES,
    SMALL,
    Setting,
    find_claims,
    run_directory,
    stages,
)
from pipeline.pretraining.architecture import parse_fields
from pipeline.settings import pretrain
from tests.data_prep.corpora import make_sentences
from tests.pipeline.workers.forked import ForkedCommands

ALL = find_claims("claims")


def words_after(flag, command):
    return command.argv[command.argv.index(flag) + 1]


def setting_at(root, documents=(), plan=SMALL, seeds=3):
    return Setting(root, tuple(documents), plan, seeds, ("python", "-m"))


def end(key, seed, root, mlm_loss=4.0, **metrics):
    """Makes up the files of a run that has ended."""
    directory = run_directory(root, key, seed)
    directory.mkdir(parents=True)
    found = {"step": 9, "split": "eval", "mlm_loss": mlm_loss, "mlm_below_unigram": 0.1, "guesses": [], **metrics}
    records = [{"step": 9, "split": "train", "tokens": 9000}, found]
    (directory / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (directory / "done").write_text("")


def test_pretrain_accepts_every_command(tmp_path):
    setting = setting_at(tmp_path)
    claims.prepare(ALL, setting)
    commands = [command for stage in stages(ALL, setting) for command in stage if "pipeline.pretrain" in command.argv]
    assert len(commands) == len({command.done for command in commands}) == 9 * 3
    assert [words_after("--seed", command) for command in commands] == ["0"] * 9 + ["1"] * 9 + ["2"] * 9
    for command in commands:
        args = pretrain.parse(command.argv[3:])
        side = SIDES[args.output.parts[-2]]
        assert args.output / "done" == command.done
        assert (args.objective, args.max_ngram) == (side.objective, side.max_ngram)
        assert args.warmup_steps == round(args.steps / 10)
        AlbertConfig.preset(PRESET, **parse_fields(args.model_args))
        config = engine_config.load(args.deepspeed_config)
        assert engine_config.batch_sizes(config, 1)[0] == side.rows
        assert config["optimizer"]["params"]["lr"] == LEARNING_RATE


def test_all_sides_of_a_claim_get_the_same_compute():
    for claim in CLAIMS.values():
        flops = [SMALL.steps(SIDES[key]) * SIDES[key].rows * SMALL.row_flops(SIDES[key]) for key in claim.sides]
        assert max(flops) / min(flops) < 1.01
    assert SMALL.steps(SIDES["unshared-64"]) > 2 * SMALL.steps(SIDES["base"])
    assert SMALL.steps(SIDES["base"]) == round(SMALL.tokens / 128 / 8)
    more = SIDES["sop"].rows * SMALL.steps(SIDES["sop"]) * SMALL.row_flops(SIDES["sop"])
    assert more / (SMALL.tokens / 128 * SMALL.row_flops(SIDES["base"])) == pytest.approx(1.7, rel=0.01)


def test_the_narrow_unshared_side_has_the_parameters_of_the_shared_one():
    counts = {}
    for key in ("base", "unshared", "unshared-64"):
        config = AlbertConfig.preset(PRESET, **SMALL.model_fields(SIDES[key]))
        counts[key] = parameter_counts(config).encoder
    assert counts["unshared-64"] == pytest.approx(counts["base"], rel=0.01)
    assert counts["unshared"] == 4 * counts["base"]


def test_the_page_compares_seed_by_seed(tmp_path, capsys):
    claims.prepare(ALL, setting_at(tmp_path, [tmp_path / "news", tmp_path / "books"]))
    accuracies = {"sop": [(0.80, 0.61), (0.84, 0.63), (0.82, 0.62)], "nsp": [(0.49, 0.70), (0.51, 0.72)]}
    for key, values in accuracies.items():
        for seed, (sop, nsp) in enumerate(values):
            end(key, seed, tmp_path, sop_accuracy=sop, nsp_accuracy=nsp)
    begun = run_directory(tmp_path, "nsp", 2)
    begun.mkdir()
    begun.with_name("seed-1.old").mkdir()
    end("base", 0, tmp_path, sop_accuracy=0.8, nsp_accuracy=0.5)
    end("embedding-64", 0, tmp_path, sop_accuracy=0.7, nsp_accuracy=0.5)
    end("dropout", 0, tmp_path, sop_accuracy=0.7, nsp_accuracy=0.5, mlm_below_unigram=0.05)
    out = tmp_path / "page"
    assert evaluate.main(["claims", "--runs", str(tmp_path), "--out", str(out)]) == 0
    text = (out / "claims.md").read_text()
    assert text in capsys.readouterr().out
    # Three seeds: t is 4.303 with two degrees of freedom, and the deviation of 80, 84, 82 is 2.
    assert "| SOP | 3 | 0.01 | 10.0 ± 0.0 | 82.0 ± 5.0 | 62.0 ± 2.5 |" in text
    assert "| SOP - chance | SOP | 3 | +32.0 ± 5.0 | higher |" in text
    # Two seeds: t is 12.71, and the deviation of -1, +1 is the root of 2.
    assert "| NSP - chance | SOP | 2 | +0.0 ± 12.7 | no difference shown |" in text
    assert "| SOP - NSP | MLM | 2 | +0.0 ± 0.0 | no difference shown |" in text
    assert f"| {SIDES['base'].title} - dropout 0.1 | MLM | 1 | +5.0 | one seed |" in text
    assert "| E 256 | 0 |  | not run | not run | not run |" in text
    assert "| E 256 - E 64 | MLM | 0 | not run |  |" in text
    assert CLAIMS["masks"].caption not in text  # has no runs
    values = json.loads((out / "claims.json").read_text())
    assert [one["name"] for one in values["claims"]] == ["5", "3", "8"]  # of masks there is one side
    assert values["claims"][0]["differences"][0]["points"] == pytest.approx(32.0)
    assert "guesses" not in values["sides"][0]["runs"][0]
    assert "text: news, books." in text
    assert str(tmp_path) not in text + (out / "claims.json").read_text()
    assert values["settings"]["tokens"] == SMALL.tokens


def test_another_start_has_the_same_documents(tmp_path):
    claims.prepare(ALL, setting_at(tmp_path))
    claims.prepare(ALL, setting_at(tmp_path, seeds=5))
    for other in (
        setting_at(tmp_path, [tmp_path / "texts"]),
        setting_at(tmp_path, plan=dataclasses.replace(SMALL, tokens=1)),
    ):
        with pytest.raises(UserError, match="choose another --out"):
            claims.prepare([], other)
    (tmp_path / "claims.json").write_bytes(b"\xff")
    with pytest.raises(UserError, match="choose another --out"):
        claims.prepare([], setting_at(tmp_path))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["2"], "scale small has no table '2'; choose one of 5, 4, 3, 8, masks, claims, or --scale paper"),
        (["5", "--documents", "{root}/none"], "holds no documents"),
        (["5", "--data", "{root}"], "--data is a flag of scale paper"),
        (["5", "--jobs", "0"], "argument --jobs: 0 is not at least 1"),
        (["2", "--scale", "paper", "--seeds", "3"], "--seeds is a flag of scale small"),
    ],
)
def test_mistakes_are_one_line(tmp_path, capsys, words, message):
    assert reproduce.main([*(word.format(root=tmp_path) for word in words), "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()
    assert evaluate.main(["claims", "--runs", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert "claims.json does not exist; name the directory DIR/small" in capsys.readouterr().err


def test_a_dry_run_names_all_runs_and_writes_nothing(tmp_path, capsys):
    assert reproduce.main(["claims", "--out", str(tmp_path / "out"), "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "# extract api" in printed  # the sample has three corpora
    assert "# 34 of 34 commands left to run" in printed  # 27 runs
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_claim_is_made_from_text_and_only_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(runner, "subprocess", ForkedCommands)
    model = {"num_hidden_layers": 1, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 32}
    plan = dataclasses.replace(SMALL, model=model, tokens=16_384, vocabulary_size=200, evaluated_tokens=4096)
    monkeypatch.setattr(reproduce, "SMALL", plan)
    for key in ("base", "single-words"):
        monkeypatch.setitem(SIDES, key, dataclasses.replace(SIDES[key], fields={}))
    text = tmp_path / "text.jsonl"
    records = [{"text": " ".join(make_sentences(20, seed=number))} for number in range(60)]
    text.write_text("".join(json.dumps(one) + "\n" for one in records))
    extract = ["extract", "--source", "jsonl", "--input", str(text), "--out", str(tmp_path / "documents")]
    data_prep([*extract, "--held-out", "0.2"])
    words = ["masks", "--out", str(tmp_path / "out"), "--documents", str(tmp_path / "documents"), "--seeds", "1"]
    assert reproduce.main(words) == 0, capsys.readouterr().out
    page = (tmp_path / "out" / "small" / "claims" / "claims.md").read_text()
    assert "not run" not in page
    assert re.search(
        rf"^\| {SIDES['base'].title} - {SIDES['single-words'].title} \| MLM \| 1 \| [+-][\d.]+ \|", page, re.M
    )
    capsys.readouterr()
    assert reproduce.main(words) == 0
    assert capsys.readouterr().out.count("done before") == 3 + 2
