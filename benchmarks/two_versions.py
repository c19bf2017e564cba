"""Measures a training step of two versions of this repository beside each other.

    git worktree add /tmp/before COMMIT
    python -m benchmarks.two_versions --before /tmp/before [--rounds 30] [--model albert-tiny albert-base]

Each version has a process of its own, which makes the steps of `benchmarks.train_step` with its own code: forward,
backward and LAMB update on made-up rows of two pairs each. The two take turns, step by step, so other load on the
machine affects both alike. Seconds are those of processor time in one thread. The command prints the median and the
middle half of the rounds' ratios, this version to the one before: below 1, this one is faster. Two processes of this
version give the spread of the method. The first losses of the versions are compared as well.
"""

import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from common.command_line import Parser, entry_point
from common.errors import UserError

HERE = Path(__file__).resolve().parent.parent
WARM_UP = 3

WORKER = """
import json, sys, time
import torch
from benchmarks.shared.examples import Examples
from benchmarks.shared.systems import make_systems
from model import AlbertConfig

preset, precision, rows, length = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
torch.set_num_threads(1)
config = AlbertConfig.preset(preset, vocab_size=30000, max_position_embeddings=length)
system = make_systems(config, getattr(torch, precision), torch.device("cpu"), compiled=False)[0]
system.model.train()
torch.manual_seed(1)
half, shape = length // 2, (rows, length)
ids = torch.randint(5, 30000, shape)
places = torch.arange(1, length, 7).expand(rows, -1)
packed = {
    "input_ids": ids,
    "token_type_ids": (torch.arange(length) % half >= half // 2).long().expand(shape),
    "position_ids": (torch.arange(length) % half).expand(shape),
    "sequence_ids": (torch.arange(length) // half).expand(shape),
    "masked_positions": places,
    "masked_labels": ids.gather(1, places),
    "cls_positions": torch.tensor([0, half]).expand(rows, 2),
    "sentence_labels": torch.tensor([0, 1]).expand(rows, 2),
}
examples = Examples({name: field.contiguous() for name, field in packed.items()}, [], rows * length, 2 * rows)
torch.manual_seed(2)
print(json.dumps(float(system.loss(examples.packed).detach())), flush=True)
for line in sys.stdin:
    began = time.process_time()
    system.step(examples)
    print(json.dumps(time.process_time() - began), flush=True)
"""
"""What a process of each version runs. It only uses what both versions have."""


class Version:
    """A process that makes training steps with the code of one version."""

    def __init__(self, tree: Path, *words: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", WORKER, *words], cwd=tree, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.first_loss = self._answer()

    def _answer(self) -> float:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise UserError("a version cannot make the model; its message is above")
        return json.loads(line)

    def step(self) -> float:
        """Makes a step and returns its seconds of processor time."""
        assert self._process.stdin is not None
        self._process.stdin.write("step\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


class Compared(NamedTuple):
    """How the steps of one version compare with those of another.

    Attributes:
        seconds: median of a step of this version.
        ratio: median of the rounds' ratios.
        middle_half: the first and the third quartile of the ratios.
        same_loss: whether the first losses are equal.
    """

    seconds: float
    ratio: float
    middle_half: tuple[float, float]
    same_loss: bool

    def __str__(self) -> str:
        low, high = self.middle_half
        losses = "equal" if self.same_loss else "different"
        return f"{1e3 * self.seconds:.1f} ms, ratio {self.ratio:.3f} ({low:.3f} to {high:.3f}), first losses {losses}"


def compare(before: Path, after: Path, rounds: int, *words: str) -> Compared:
    """Makes `rounds` steps of each version in turns; the order changes in every round.

    Args:
        before, after: directories of the versions.
        words: preset, name of a dtype of torch, rows of a batch, and tokens of a row.
    Raises:
        UserError: a version cannot make the model.
    """
    versions: list[Version] = []
    try:
        for tree in (before, after):
            versions.append(Version(tree, *words))
        measured: list[Any] = []
        for number in range(-WARM_UP, rounds):
            seconds = {version: version.step() for version in (versions if number % 2 else versions[::-1])}
            if number >= 0:
                measured.append([seconds[version] for version in versions])
        same = versions[0].first_loss == versions[1].first_loss
    finally:
        for version in versions:
            version.close()
    ratios = [after / before for before, after in measured]
    low, _, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return Compared(statistics.median(one for _, one in measured), statistics.median(ratios), (low, high), same)


@entry_point
def main(argv: Sequence[str]) -> None:
    """Runs the command line."""
    p = Parser(prog="python -m benchmarks.two_versions", description=(__doc__ or "").splitlines()[0])
    p.add_argument("--before", required=True, type=Path, metavar="DIR", help="a working tree of the other version")
    p.add_argument("--model", nargs="+", metavar="NAME", default=["albert-tiny", "albert-base"], help="presets")
    p.add_argument("--precision", choices=("float32", "bfloat16"), default="float32", help="(float32)")
    p.add_argument("--rows", type=int, default=2, metavar="N", help="rows of a batch (2)")
    p.add_argument("--length", type=int, default=128, metavar="N", help="tokens of a row (128)")
    p.add_argument("--rounds", type=int, default=30, metavar="N", help="steps of each version (30)")
    args = p.parse_all(argv)
    if args.rounds < 2 or args.rows < 1 or args.length < 16:
        raise UserError("give --rounds of 2 or more, --rows of 1 or more, and --length of 16 or more")
    if not (args.before / "benchmarks" / "train_step.py").is_file():
        raise UserError(f"{args.before} is no working tree of this repository; make one with `git worktree add`")
    for model in args.model:
        words = (model, args.precision, str(args.rows), str(args.length))
        for name, before in (("before", args.before), ("this version", HERE)):
            print(f"{model} beside {name}: {compare(before, HERE, args.rounds, *words)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
