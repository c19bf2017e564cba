"""The work of `pipeline.pretrain`: checks the command, trains, and exports the model."""

import argparse
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from common.errors import UserError
from data_prep.format.shards import read_manifest
from data_prep.jobs.verify import problem_of
from data_prep.text.vocabulary import Vocabulary
from model import AlbertForPreTraining
from pipeline.checkpoint import run_directory
from pipeline.checkpoint.initial_weights import fill
from pipeline.data.collate import Collator
from pipeline.data.masking import MaskingSettings
from pipeline.data.mixture import Mixture, names_of, open_mixture
from pipeline.distributed import elastic
from pipeline.distributed.control import ControlGroup
from pipeline.distributed.exits import StopSignals
from pipeline.engine import workarounds
from pipeline.engine.machine import determinism
from pipeline.engine.machine.hardware import detect_hardware
from pipeline.pretraining.settings import EARLIER_DEFAULTS, PretrainSettings, resolve
from pipeline.pretraining.task import PreTraining
from pipeline.sharing.export import export_pretrained
from pipeline.training import lifecycle
from pipeline.training.attention import choice
from pipeline.training.flags import check_writable
from pipeline.training.lifecycle import OpenRun
from pipeline.training.reporting.throughput import Throughput


@dataclass(frozen=True)
class Prepared(lifecycle.Prepared[PretrainSettings]):
    """A checked command line.

    Attributes:
        device_name: of the accelerator.
    """

    device_name: str

    def facts(self) -> dict[str, str]:
        """See `pipeline.training.lifecycle.Prepared.facts`; and the lengths."""
        return super().facts() | {"the length": str(self.runs[0].lengths)}


def prepare(args: argparse.Namespace, world_size: int) -> Prepared:
    """Checks a parsed command line for `world_size` ranks. Writes nothing. Raises UserError for a mistake."""
    if args.deterministic:
        determinism.switch_on()
    hardware = detect_hardware()
    settings = resolve(args, world_size, hardware)
    check_writable(args.output)
    # A changed length is not another run: `lengths_of` has checked it.
    same = {"steps": settings.earlier_steps}
    lifecycle.check(settings, same, EARLIER_DEFAULTS, reopens=settings.changes_length)
    done = lifecycle.is_done(settings) and not settings.changes_length
    finished = f"{settings.output} is finished ({settings.steps} steps): nothing to do" if done else ""
    return Prepared(settings.output, [settings], [done], finished, hardware.name)


def run(prepared: Prepared) -> int:
    """Trains to the end of the run and exports the model. Collective.

    Returns:
        The exit status, see `pipeline.training.lifecycle.train`.
    """
    (settings,) = prepared.runs
    vocabulary = Vocabulary.load(settings.data[0] / "spiece.model")
    training, held_out = open_data(settings, vocabulary)
    workarounds.init_distributed()
    control = ControlGroup()
    for directory in (*settings.data, *settings.eval_data):
        _check_contents(directory, control)
    with run_directory.lock_run(settings.output, control, prepared.check_unchanged, elastic.lock_seconds()):
        if settings.changes_length and control.rank == 0:
            run_directory.reopen(settings.output)
        first_step = PreTraining(settings, training, held_out, control, vocabulary.pieces).steps([0])
        settings = choice.settle(settings, lambda: next(first_step)[0], control)
        new_tensors: list[str] = []

        def make_model() -> nn.Module:
            model = AlbertForPreTraining(settings.model, settings.execution)
            new_tensors.extend(fill_initial(model, settings))
            return model

        opened = lifecycle.open_run(settings, make_model, vocabulary, control)
        _introduce(opened, settings, training, new_tensors)
        task = PreTraining(settings, training, held_out, control, vocabulary.pieces)
        shape, precision = training.collators[0].shape, settings.engine.precision
        throughput = Throughput.of(settings.model, shape, control.world_size, prepared.device_name, precision)
        if status := lifecycle.train(opened, task, StopSignals(), throughput):
            return status
        lifecycle.finish(opened, export_pretrained)
        return 0


def fill_initial(model: AlbertForPreTraining, settings: PretrainSettings) -> list[str]:
    """Gives `model` the weights of --init, unless a checkpoint will give it others. Returns what stays random."""
    initial = settings.initial
    if initial is None or initial.weights is None:
        return []
    same_sentence_task = initial.config.sentence_head == settings.model.sentence_head
    kept = fill(model, initial.weights, lambda name: same_sentence_task or not name.startswith("sentence_head."))
    initial.weights.tensors.clear()  # the settings live as long as the run
    return kept


def open_data(settings: PretrainSettings, vocabulary: Vocabulary) -> tuple[Mixture, dict[str, Collator]]:
    """Opens the training shards and, by name, the held-out shards.

    Held-out rows have the paper's masks whatever the masks of training, so that runs can be compared.
    """
    drawn_by = vocabulary.continues_word, settings.objective, settings.seed
    held_out = {
        name: open_mixture([directory], [1], *drawn_by, MaskingSettings()).collators[0]
        for name, directory in zip(names_of(settings.eval_data), settings.eval_data)
    }
    return open_mixture(settings.data, settings.corpus_weights, *drawn_by, settings.masking), held_out


def _check_contents(directory: Path, control: ControlGroup) -> None:
    """Checks every byte of a shard set; each rank checks some of the files. Collective.

    It reads the data once per start, at the speed of the disk. Damaged data would waste far more GPU time.

    Raises:
        UserError: on all ranks, if a file has changed since it was written.
    """
    manifest = read_manifest(directory)
    mine = manifest.files[control.rank :: control.world_size]
    problem = next(filter(None, (problem_of(directory, file, manifest) for file in mine)), "")
    if found := control.first_problem(problem):
        raise UserError(
            f"{directory} is damaged: {found}; run `python -m data_prep verify {directory}` for the whole list"
        )


def _introduce(opened: OpenRun, settings: PretrainSettings, training: Mixture, new_tensors: Sequence[str]) -> None:
    model, samples = settings.model, settings.steps * settings.engine.train_batch_size
    subject = [
        f"model: {model.num_hidden_layers} layers, hidden size {model.hidden_size}, vocabulary {model.vocab_size:,}"
    ]
    if settings.initial is not None and not opened.state.step:
        new = f"; new: {', '.join(new_tensors)}" if new_tensors else ""
        subject.append(f"weights from {settings.initial.directory}{new}")
    rate = settings.schedule()
    for before, length in itertools.pairwise(settings.lengths):
        step = length.from_step
        subject.append(
            f"length changed after step {step:,}: {before.steps:,} -> {length.steps:,} steps; learning rate there: "
            f"{rate(step - 1):.3g} -> {rate(step):.3g}"
        )
    details = training.describe(samples)
    if not settings.eval_data:
        details.append("note: no --eval-data, so nothing is evaluated and no checkpoint counts as the best")
    lifecycle.introduce(opened, subject, training.rows, "rows", details)
