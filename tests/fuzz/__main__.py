"""Damages one file that a command reads, and judges how the command ends; as often as it is asked for.

    python -m tests.fuzz [--cases 1000] [--seed 0] [--command NAME]

Half of the damaged files get the right hash again. A command must end in time with status 0, or with status 2 and one
line that begins with "error: ", and change nothing outside of its output.
"""

import argparse
import gzip
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from common.files.checksums import content_checksum, file_checksum
from data_prep import __main__ as data_prep
from tests.data_prep import corpora
from tests.pipeline.analysis import made_runs
from tests.pipeline.sharing import runs
from tests.pipeline.tasks import own_files, task_files
from tests.pipeline.workers import forked

SECONDS = 600
"""In which a command must end."""
CHECKPOINT = "run/checkpoints/*/*"
COMMANDS = {
    "extract": ("data_prep extract --source jsonl --input @/records --out @/out", "records/*"),
    "vocab": ("data_prep vocab --documents @/documents --out @/out/v.model --size 300", "documents/*"),
    "shards": (
        "data_prep shards --documents @/documents --vocab @/v.model --max-seq-length 64 --out @/out",
        "documents/* v.model",
    ),
    "verify": ("data_prep verify @/shards", "shards/*"),
    "show": ("data_prep show @/shards -n 5", "shards/*"),
    "export": ("pipeline.export --run @/run --out @/out", f"{CHECKPOINT} run/*"),
    "summary": ("pipeline.evaluate summary --run @/run", "run/settings.json run/metrics.jsonl"),
    "compare": ("pipeline.evaluate compare --runs @/tuned --random @/tuned", "tuned/*/*.json tuned/*/logits/*"),
    "pairs": ("pipeline.evaluate minimal-pairs --run @/run --pairs @/pairs --out @/out", "pairs/*"),
    "predict": ("pipeline.predict --run @/tuned/rte --input @/new.csv --out @/out", "new.csv tuned/rte/*"),
    "masks": ("pipeline.predict --run @/run --mask [MASK].", f"{CHECKPOINT} run/*"),
    "pretrain": (
        "pipeline.pretrain --model albert-tiny --data @/shards --deepspeed_config @/deepspeed.json --steps 2 "
        "--output @/out",
        "shards/* deepspeed.json",
    ),
    "finetune": (
        "pipeline.finetune --task rte --data @/tasks/glue/RTE --steps 2 --output @/out --init @/run",
        f"tasks/glue/RTE/* {CHECKPOINT} run/*",
    ),
}
"""By name: the words, in which @ is the root of the inputs, and patterns of the files that are damaged."""
VALUES: tuple[Any, ...] = (
    *(None, True, 0, 1, -1, 2**31, 2**63, 10**30, 0.5, 1e308, float("nan"), "", "x", "../victim", "a\nb"),
    *("n" * 5000, [], {}, [[]], [None], {"a": 1}, [1, 2, 3]),
)


def make_inputs(root: Path) -> None:
    """Makes one small valid set of everything that the commands read."""
    documents = corpora.write_documents(root / "documents", corpora.make_documents(30))
    vocabulary = root / "v.model"
    data_prep.main(["vocab", "--documents", str(documents), "--out", str(vocabulary), "--size", "300"])
    words = ["--documents", str(documents), "--vocab", str(vocabulary), "--max-seq-length", "64"]
    data_prep.main(["shards", *words, "--out", str(root / "shards")])
    config = runs.config_of(vocab_size=300)
    runs.pretraining(root / "run", vocabulary, config=config, recorded=runs.RECORDED, state=runs.STATE)
    runs.metrics(root / "run", {1: 6.0, 2: 5.0})
    runs.finetuning(root / "tuned" / "rte", vocabulary, config=config, init=str(root / "run"))
    squad = made_runs.finetuning(root / "tuned" / "squad", "squad2", root / "run", {"dev": {"f1": 5.0}})
    made_runs.answers(squad, "dev", 6, 3, null_score=0.5)
    task_files.write_all(root / "tasks")
    own_files.write(root / "new.csv", {"sentence1": ["One text."] * 9, "sentence2": ["Another."] * 9})
    config = {"train_batch_size": 4, "optimizer": {"type": "Lamb", "params": {"lr": 0.001}}}
    (root / "deepspeed.json").write_text(json.dumps(config))
    texts = [f"A text about number {n}. It has two sentences." for n in range(40)]
    own_files.write(root / "records" / "records.jsonl", {"id": [str(n) for n in range(40)], "text": texts})
    pairs = {"good": ["A dog barks."] * 9, "bad": ["A dog bark."] * 9, "phenomenon": list("aaabbbccc")}
    own_files.write(root / "pairs" / "one.jsonl", pairs)
    (root / "pairs" / "two.jsonl.gz").write_bytes(gzip.compress((root / "pairs" / "one.jsonl").read_bytes()))
    (root / "victim").write_text("of a person")


def damage(path: Path, rng: random.Random) -> str:
    """Changes a file, and returns what was done."""
    content = path.read_bytes()
    if path.suffix in (".json", ".jsonl") and rng.random() < 0.6:
        lines = content.decode().splitlines() if path.suffix == ".jsonl" else [content.decode()]
        number = rng.randrange(len(lines))
        value = json.loads(lines[number])
        if found := list(places(value)):
            container, key = rng.choice(found)
            container[key] = rng.choice((rng.choice(VALUES), str(container[key]), [container[key]]))
            lines[number] = json.dumps(value)
            path.write_text("\n".join(lines) + "\n")
            return f"another value of {key}"
    kind = rng.choice(("truncate", "flip", "append", "garble", "deep", "missing", "fifo"))
    if kind in ("missing", "fifo"):
        path.unlink()
        if kind == "fifo":
            os.mkfifo(path)
        return kind
    place = rng.randrange(len(content) + 1)
    changed = {
        "truncate": content[:place],
        "flip": content[:place] + rng.randbytes(1) + content[place + 1 :],
        "append": content + rng.choice((b"\n", b"{}", b"\0" * 100)),
        "garble": rng.randbytes(len(content)),
        "deep": b"[" * 100_000,
    }
    path.write_bytes(changed[kind])
    return kind


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yields (container, key) of each value at any depth."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from places(value[key])


def seal(path: Path) -> bool:
    """Enters a file with its hash into the manifest beside it, or a manifest's own hash. False if there is none."""
    try:
        names = ("manifest.json", "documents.json")
        manifest = path if path.name in names else next(filter(Path.exists, map(path.with_name, names)))
        record = json.loads(manifest.read_text())
        if manifest != path:
            files = record.get("content", record)["files"]
            entry = files[path.name] if isinstance(files, dict) else next(e for e in files if e["name"] == path.name)
            entry.update(bytes=path.stat().st_size, xxh3_128=file_checksum(path))
        content = record.get("content", {key: value for key, value in record.items() if key != "xxh3_128"})
        manifest.write_text(json.dumps(record | {"xxh3_128": content_checksum(content)}))
    except (StopIteration, ValueError, LookupError, TypeError, AttributeError, RecursionError, OSError):
        return False
    return True


def run_case(words: list[str], root: Path) -> str:
    """Runs a command in a forked process, and returns what is wrong with its end, or ""."""
    before = snapshot(root)
    try:
        ended = forked.run_module(words[0], words[1:], Path.cwd(), os.environ | {"DS_ACCELERATOR": "cpu"}, SECONDS)
    except subprocess.TimeoutExpired:
        return f"took more than {SECONDS} s"
    lines = ended.stderr.splitlines()
    said = [line for line in lines if line.startswith("error: ")]
    if ended.returncode not in (0, 2) or (ended.returncode == 2 and said != lines[-1:]):
        return f"status {ended.returncode}: " + "\n".join(lines[-30:])
    after = snapshot(root)
    changed = [name for name in before | after if before.get(name) != after.get(name)]
    return f"changed {changed[:3]}" if changed else ""


def snapshot(root: Path) -> dict[str, object]:
    """The content of each file below `root` that is not in the output, and the kind of everything else."""
    paths = (path for path in root.rglob("*") if path.relative_to(root).parts[0] not in ("out", ".out.lock"))
    return {str(path): path.read_bytes() if path.is_file() else path.lstat().st_mode for path in paths}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=1000, metavar="N", help="number of cases (1000)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="other cases (0)")
    parser.add_argument("--command", choices=COMMANDS, help="only this command (all)")
    args = parser.parse_args()
    names = [args.command] if args.command else list(COMMANDS)
    faults = 0
    with tempfile.TemporaryDirectory() as place:
        valid, root = Path(place, "valid"), Path(place, "inputs")
        valid.mkdir()
        make_inputs(valid)
        for number in range(-len(names), args.cases):  # each command on valid inputs first
            name = names[number % len(names)]
            rng = random.Random(f"{name} {args.seed} {number}")
            shutil.rmtree(root, ignore_errors=True)
            shutil.copytree(valid, root, symlinks=True)
            words, patterns = COMMANDS[name]
            case = f"{name} {number}: valid"
            if number >= 0:
                files = sorted({path for one in patterns.split() for path in root.glob(one) if path.is_file()})
                path = rng.choice(files)
                case = f"{name} {number}: {damage(path, rng)} of {path.relative_to(root)}"
                if path.is_file() and rng.random() < 0.5 and seal(path):
                    case += ", sealed"
            if fault := run_case([word.replace("@", str(root)) for word in words.split()], root):
                faults += 1
                print(f"FAULT {case}\n{fault}\n", flush=True)
    print(f"{args.cases} cases, {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
