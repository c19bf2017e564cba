"""The probe that chooses the peak rate and the start, and the pre-training that follows.

The rule of the probe was written before any result: all choices make the same number of steps, side by side, each with
a whole schedule; the one with the lowest MLM loss on the validation documents is taken. Nothing is reported on these.
"""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.shared.commands import Command, Stage
from benchmarks.study.plan import STARTS, Choice, Plan
from benchmarks.study.text import Corpus, splits_of
from common.errors import UserError
from common.files import atomic
from data_prep.corpus.documents import HELD_OUT, TRAIN, VALIDATION
from model import AlbertConfig
from pipeline.checkpoint.retention import is_milestone, tags
from pipeline.settings.settings_file import read_settings
from pipeline.training.metrics_file import read_records


class Evaluation(NamedTuple):
    """An evaluation of a run on all its held-out directories together: MLM loss in nats, None if it is not finite.

    The unigram entropy is the loss of a model that knows the frequencies of the tokens alone.
    """

    step: int
    loss: float | None
    entropy: float


@dataclass(frozen=True)
class Training:
    """Pre-training in OUT.

    Attributes:
        corpora: whose shards are made.
        python: begins a command of one rank; launcher: of all.
    """

    plan: Plan
    corpora: Sequence[Corpus]
    out: Path
    python: tuple[str, ...]
    launcher: tuple[str, ...]

    def shards(self, split: str) -> list[str]:
        """The directories of the shards of one split, of the corpora that have it."""
        return [str(one.shards(self.out, split)) for one in self.corpora if split in splits_of(one, self.out)]

    @property
    def evaluated(self) -> list[str]:
        """The names of the corpora with held-out text, in the order of the evaluations."""
        return [Path(directory).name for directory in self.shards(HELD_OUT)]

    def _words(self, choice: Choice, begin: tuple[str, ...], micro_batch: int, run: Path) -> list[str]:
        """The words that every run has in common. Writes the DeepSpeed JSON."""
        plan, config = self.plan, run.parent / f"{run.name}.json"
        config.parent.mkdir(parents=True, exist_ok=True)
        atomic.write_text(config, json.dumps(plan.engine(choice, micro_batch), indent=1) + "\n")
        words = [*begin, "pipeline.pretrain", "--model", plan.preset, "--model-args"]
        words += [*STARTS[choice.start].split(), *(f"{name}={value}" for name, value in plan.model.items())]
        words += ["--data", *self.shards(TRAIN), "--deepspeed_config", str(config), "--output", str(run)]
        return [*words, "--verify", "never", *plan.flags]

    def probe(self) -> Stage:
        """A short run of each choice on one rank, side by side."""
        steps, commands = self.plan.probe_steps, []
        for choice in self.plan.choices:
            run = self._probe_run(choice)
            words = self._words(choice, self.python, max(1, self.plan.micro_batch // 2), run)
            words += ["--eval-data", *self.shards(VALIDATION)] if self.shards(VALIDATION) else []
            often = str(steps // self.plan.probe_evaluations)
            words += ["--eval-batches", str(self.plan.eval_batches), "--eval-interval", often]
            words += ["--steps", str(steps), "--warmup-steps", str(steps // 5), "--log-interval", str(steps // 5)]
            words += ["--save-interval", str(steps)]
            commands.append(Command(f"probe {choice.name}", tuple(words), run / "done", may_fail=True))
        return tuple(commands)

    def _probe_run(self, choice: Choice) -> Path:
        return self.out / "probe" / choice.name

    def probed(self) -> dict[Choice, list[Evaluation]]:
        """By choice, the evaluations of the probe on the validation documents; none of a run that failed."""
        runs = {choice: self._probe_run(choice) for choice in self.plan.choices}
        return {choice: evaluations(run) if (run / "done").exists() else [] for choice, run in runs.items()}

    def speed(self, at_once: int) -> float:
        """Tokens a second that this machine reads in pre-training: of all runs of the probe that ran `at_once`."""
        ended = [self._probe_run(choice) for choice in self.plan.choices]
        speeds = [tokens_a_second(run) for run in ended if (run / "done").exists()]
        if not speeds:
            raise UserError(f"all runs of the probe failed; their output is in {self.out / 'logs'}")
        return sum(speeds) / len(speeds) * min(at_once, len(speeds))

    def pretraining(self, choice: Choice, hours: float, speed: float) -> Command:
        """The command of pre-training.

        Args:
            hours: its limit, at which the schedule ends.
            speed: tokens a second. It decides the steps; a slower machine ends the schedule at the limit.
        """
        plan = self.plan
        steps = max(plan.evaluations, round(1.2 * 3600 * hours * speed / (plan.batch * plan.length)))
        logged = max(1, steps // plan.evaluations // 5)
        often = 5 * logged  # every evaluation is at a logged step, which has the tokens and the time
        words = self._words(choice, self.launcher, plan.micro_batch, self.out / "pretrain")
        words += ["--eval-data", *self.shards(HELD_OUT)] if self.evaluated else []
        words += ["--eval-batches", str(plan.eval_batches)]
        words += ["--steps", str(steps), "--warmup-steps", str(steps // 10), "--max-hours", f"{hours:g}"]
        words += ["--eval-interval", str(often), "--log-interval", str(logged)]
        words += ["--save-interval", str(2 * often), "--keep-checkpoints", "2"]
        words += ["--keep-at", *plan.milestones] if plan.milestones else []
        return Command("pre-train", tuple(words), self.out / "pretrain" / "done")

    def minimal_pairs(self, pairs: Path) -> Stage:
        """The commands that score the final model and the milestones on minimal pairs."""
        run, scores = self.out / "pretrain", self.out / "minimal_pairs"
        scores.mkdir(exist_ok=True)
        kept = [tag for tag in reversed(tags(run / "checkpoints")) if is_milestone(tag)]
        models = [(run / "export", self.plan.final_pairs), *((tag, self.plan.pairs) for tag in kept)]
        words, stage = (*self.python, "pipeline.evaluate", "minimal-pairs", "--pairs", str(pairs)), []
        for model, count in models:
            limit = () if count is None else ("--limit", str(count))
            file = scores / f"{model.name}.json"
            command = (*words, *limit, "--run", str(model), "--out", str(file))
            stage.append(Command(f"minimal pairs {file.stem}", command, file))
        return tuple(stage)


def evaluations(run: Path) -> list[Evaluation]:
    """The evaluations of a run, in their order."""
    found = []
    for record in read_records(run, "eval"):
        prefixes = [name.removesuffix("mlm_loss") for name in record if name.endswith("mlm_loss")]
        counts, losses, entropies = (
            [record[f"{prefix}{name}"] for prefix in prefixes]
            for name in ("predictions", "mlm_loss", "mlm_unigram_entropy")
        )
        loss = None if None in losses else float(np.average(losses, weights=counts))
        found.append(Evaluation(record["step"], loss, float(np.average(entropies, weights=counts))))
    return found


def chosen(probed: Mapping[Choice, Sequence[Evaluation]]) -> Choice:
    """The choice with the lowest loss in the end, the first of equals."""
    ended = {choice: of_run[-1].loss for choice, of_run in probed.items() if of_run}
    return min(probed, key=lambda choice: math.inf if (loss := ended.get(choice)) is None else loss)


def tokens_a_second(run: Path) -> float:
    """Tokens that a run has read a second, with all ranks; fine-tuning keeps as many cores busy.

    The records are of as many steps each, and their speeds leave out evaluations, of which the probe has many. The
    first record has the time of compiling.
    """
    _, *later = read_records(run, "train")
    return statistics.harmonic_mean([record["tokens_per_second"] for record in later])


def check_earlier(plan: Plan, out: Path, minutes: float) -> None:
    """Raises UserError if an earlier start pre-trains another model in OUT, or with another limit of time."""
    run = out / "pretrain"
    if not (run / "settings.json").exists():
        return
    settings, config = read_settings(run), AlbertConfig.preset(plan.preset, **plan.model)
    sizes = ("num_hidden_layers", "hidden_size", *plan.model)
    if any(getattr(settings.model, name) != getattr(config, name) for name in sizes):
        raise UserError(f"{out} has a study of another model; give another --out, or move it away")
    before = 60 * (settings.flags.max_hours or 0.0) / plan.pretraining
    if not (run / "done").exists() and not math.isclose(before, minutes, rel_tol=1e-4):
        raise UserError(f"{out} has a study of {before:g} minutes; give --minutes {before:g} until it is pre-trained")
