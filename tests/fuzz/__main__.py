"""Damages one file that a command reads, and judges how the command ends; as often as it is asked for.

    python -m tests.fuzz [--cases 1000] [--seed 0] [--command NAME]

Half of the damaged files get the right hash again. A command must end with status 0, or with status 2 and one line that
begins with "error: ". It must end in time, take less than 2 GiB, and change nothing outside of its output.
"""

import argparse
import contextlib
import json
import os
import random
import resource
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from common.files.checksums import content_checksum, file_checksum
from data_prep import __main__ as data_prep
from tests.data_prep import corpora
from tests.pipeline.analysis import made_runs
from tests.pipeline.sharing import runs
from tests.pipeline.tasks import own_files, task_files

TIME_LIMIT = 300
"""Seconds of processor time."""
MEMORY_LIMIT = 2 << 30
CHECKPOINT = "run/checkpoints/*/*"
COMMANDS = {
    "extract": ("data_prep extract --source jsonl --input @/records --out @/out", "records/*"),
    "vocab": ("data_prep vocab --documents @/documents --out @/out/v.model --size 300", "documents/*"),
    "shards": (
        "data_prep shards --documents @/documents --vocab @/v.model --max-seq-length 64 --out @/out",
        "documents/* v.model",
    ),
    "verify": ("data_prep verify @/shards", "shards/*"),
    "show": ("pipeline.show @/shards -n 5", "shards/*"),
    "stats": ("data_prep stats @/shards", "shards/*"),
    "export": ("pipeline.export --run @/run --out @/out", f"{CHECKPOINT} run/*"),
    "summary": ("pipeline.evaluate summary --run @/run", "run/settings.json run/metrics.jsonl"),
    "ensemble": ("pipeline.evaluate ensemble --runs @/tuned --out @/out", "tuned/*/*.json tuned/*/logits/*"),
    "compare": ("pipeline.evaluate compare --runs @/tuned --random @/tuned", "tuned/*/*.json tuned/*/logits/*"),
    "reproduce": (
        "pipeline.reproduce 2 --data @/shards --eval-data @/shards --data-root @/tasks --out @/out",
        "shards/manifest.json tasks/**/*",
    ),
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
    (root / "records").mkdir()
    lines = [json.dumps({"id": str(n), "text": f"A text about number {n}. It has two sentences."}) for n in range(40)]
    (root / "records" / "records.jsonl").write_text("\n".join(lines) + "\n")
    (root / "victim").write_text("of a person")


def damage(path: Path, rng: random.Random) -> str:
    """Changes a file, and returns what was done."""
    content = path.read_bytes()
    if path.suffix in (".json", ".jsonl") and rng.random() < 0.6:
        with contextlib.suppress(ValueError, IndexError):
            lines = content.decode().splitlines() if path.suffix == ".jsonl" else [content.decode()]
            number = rng.randrange(len(lines))
            value = json.loads(lines[number])
            container, key = rng.choice(list(places(value)))
            change = rng.choice(("replace", "drop", "text", "list"))
            if change == "drop":
                del container[key]
            else:
                new = {"replace": rng.choice(VALUES), "text": str(container[key]), "list": [container[key]]}
                container[key] = new[change]
            lines[number] = json.dumps(value)
            path.write_text("\n".join(lines) + "\n")
            return f"{change} {key}"
    kind = rng.choice(("truncate", "flip", "overwrite", "append", "garble", "deep", "missing", "fifo", "directory"))
    if kind in ("missing", "fifo", "directory"):
        path.unlink()
        {"missing": lambda _: None, "fifo": os.mkfifo, "directory": Path.mkdir}[kind](path)
        return kind
    place = rng.randrange(len(content) + 1)
    word = rng.choice((b"\xff" * 8, b"\0" * 8, b"\x7f" + b"\xff" * 7))
    changed = {
        "truncate": content[:place],
        "flip": content[:place] + rng.randbytes(1) + content[place + 1 :],
        "overwrite": content[:place] + word + content[place + 8 :],
        "append": content + rng.choice((b"\n", b"{}", b"\0" * 100)),
        "garble": rng.randbytes(len(content)),
        "deep": b"[" * rng.choice((150, 100_000)),
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


def run_case(words: list[str], root: Path, errors: Path) -> str:
    """Runs a command in a child process, and returns what is wrong with its end, or ""."""
    before = snapshot(root)
    child = os.fork()
    if not child:
        status: object = 1
        try:
            os.chdir(root.parent)
            for number, path in ((1, Path(os.devnull)), (2, errors)):
                os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
            sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
            resource.setrlimit(resource.RLIMIT_CPU, (TIME_LIMIT, TIME_LIMIT))
            sys.argv = words
            module = import_module(words[0])
            status = (data_prep.entry() if words[0] == "data_prep" else module.main(words[1:])) or 0
        except SystemExit as error:
            status = error.code or 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status if isinstance(status, int) else 1)
    _, wait_status, usage = os.wait4(child, 0)
    status = os.waitstatus_to_exitcode(wait_status)
    lines = errors.read_text(errors="replace").splitlines()
    said = [line for line in lines if line.startswith("error: ")]
    if status not in (0, 2) or (status == 2 and said != lines[-1:]):
        return f"status {status}: " + "\n".join(lines[-30:])
    if usage.ru_maxrss << 10 > MEMORY_LIMIT:
        return f"took {usage.ru_maxrss / 2**20:.1f} GiB"
    after = snapshot(root)
    changed = [name for name in before | after if before.get(name) != after.get(name)]
    return f"changed {changed[:3]}" if changed else ""


def snapshot(root: Path) -> dict[str, object]:
    """The content of each file below `root` that is not in the output, and the kind of everything else."""
    paths = (path for path in root.rglob("*") if path.relative_to(root).parts[0] not in ("out", ".out.lock"))
    return {str(path): path.read_bytes() if path.is_file() else path.lstat().st_mode for path in paths}


def main() -> int:
    """Runs the cases, and returns 1 if one of them has a fault."""
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
        # A child makes them: the threads of libraries that it starts would be lost in later forks.
        if not (child := os.fork()):
            try:
                make_inputs(valid)
                os._exit(0)
            finally:
                traceback.print_exc()
                os._exit(1)
        if os.waitpid(child, 0)[1]:
            return 1
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
            if fault := run_case([word.replace("@", str(root)) for word in words.split()], root, Path(place, "stderr")):
                faults += 1
                print(f"FAULT {case}\n{fault}\n", flush=True)
            if number > 0 and number % 100 == 99:
                print(f"{number + 1} cases, {faults} faults", flush=True)
    print(f"{args.cases} cases, {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
