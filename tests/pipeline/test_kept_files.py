"""One table over all commands that write: none removes or overwrites a file that it did not write."""

import json
import sys
from types import SimpleNamespace

import pytest

from data_prep import __main__ as data_prep_command
from data_prep.text.load_vocabulary import load_vocabulary
from data_prep.text.tokenizer_json import tokenizer_files
from model import huggingface
from pipeline import evaluate, export, finetune, pretrain
from pipeline.checkpoint.initial_weights import load_run
from tests.pipeline.analysis import made_runs
from tests.pipeline.finetuning.finetune_runs import be_no_rank
from tests.pipeline.sharing import runs
from tests.pipeline.tasks import task_files

pytestmark = pytest.mark.slow

USER_FILES = {
    "config.json": '{"of": "someone"}',
    "results.json": '{"task": "theirs"}',
    ".git/HEAD": "ref: refs/heads/main\n",
    "notes.txt": "months of work",
    "name.scratch/part.bin": "\x00\x01",
}


def write_files(directory, files):
    for name, text in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)


def contents(directory):
    """Every file below `directory` with its bytes, every other directory with None."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() if path.is_file() else None
        for path in directory.rglob("*")
    }


@pytest.fixture(scope="module")
def made(corpus, tmp_path_factory):
    """Inputs of every command: a run, an export, fine-tuning runs, tasks, text."""
    root = tmp_path_factory.mktemp("made")
    run = runs.pretraining(root / "run", corpus.vocabulary)
    huggingface.save(load_run(run), root / "export", tokenizer_files(load_vocabulary(corpus.vocabulary), 128))
    for number in range(2):
        tuned = made_runs.finetuning(root / "tuned" / f"rte-{number}", "rte", "x", {})
        made_runs.logits(tuned, "dev", 15, 5)
    task_files.write_all(root)
    (root / "text.txt").write_text("Badofi gukela. Monipu.\n")
    config = {"train_batch_size": 4, "optimizer": {"type": "Lamb", "params": {"lr": 0.01}}}
    (root / "config.json").write_text(json.dumps(config | {"zero_optimization": {"stage": 1}}))
    return SimpleNamespace(root=root, run=run, **vars(corpus))


def data_prep(line):
    """Runs `python -m data_prep` with these words."""
    sys.argv[1:] = line
    return data_prep_command.entry()


# Each: the user's files in the victim besides USER_FILES, the program, and its words; {m} has the inputs.
CASES = {
    "export": ({}, export.main, "--run {m.run} --out {v}"),
    "sample": ({}, data_prep, "sample --out {v}"),
    "extract": ({}, data_prep, "extract --source books --input {m.root}/text.txt --out {v}"),
    "shards": (
        {".dedup/theirs.txt": "x"}, data_prep, "shards --documents {m.documents} --vocab {m.vocabulary} --out {v}",
    ),
    "vocab beside a JSON of someone": (
        {}, data_prep, "vocab --documents {m.documents} --out {v}/config.model --size 200",
    ),
    "pretrain": (
        {"checkpoints/step-00000001/manifest.json": "{}", "metrics.jsonl": "{}", "spiece.model": "theirs"},
        pretrain.main,
        "--model albert-tiny --data {m.train} --deepspeed_config {m.root}/config.json --output {v} --steps 1 "
        "--warmup-steps 0",
    ),
    "finetune": (
        {"logits/dev.npz": "theirs"},
        finetune.main,
        "--task rte --init {m.root}/export --data {m.root}/glue --output {v} --steps 1 --warmup-steps 0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_files_of_a_person_stay_and_the_command_refuses(made, tmp_path, monkeypatch, refusal, case):
    be_no_rank(monkeypatch)
    files, program, words = CASES[case]
    victim = tmp_path / "victim"
    write_files(victim, USER_FILES | files)
    before = contents(tmp_path)
    monkeypatch.setattr(sys, "argv", ["data_prep"])
    refusal(program, *words.format(m=made, v=victim).split())
    assert contents(tmp_path) == before


def test_a_results_file_does_not_lead_elsewhere(tmp_path, refusal):
    write_files(tmp_path / "victim", USER_FILES)
    run = made_runs.finetuning(tmp_path / "runs" / "rte", "rte", "x", {})
    made_runs.logits(run, "dev", 15, 5)
    other = json.loads((run / "results.json").read_text()) | {"task": "../victim"}
    (run / "results.json").write_text(json.dumps(other))
    before = contents(tmp_path)
    assert "'../victim', which is no " in refusal(evaluate.main, "compare", "--runs", tmp_path / "runs")
    assert contents(tmp_path) == before
