"""The work of `pipeline.pretrain`: checks the command, trains, and exports the model."""

import argparse
import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import nn

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
from pipeline.pretraining import host_data
from pipeline.pretraining.host_data import Share
from pipeline.pretraining.settings import EARLIER_DEFAULTS, PretrainSettings, resolve
from pipeline.pretraining.task import PreTraining
from pipeline.sharing.export import export_usual, pretrained
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
    workarounds.init_distributed()
    control = ControlGroup()
    directories = (*settings.data, *settings.eval_data)
    places = host_data.prepare(directories, settings.stage, control, Share.of_this_process())
    training, held_out = open_data(settings, vocabulary, dict(zip(directories, places)))
    with run_directory.lock_run(settings.output, control, prepared.check_unchanged, elastic.lock_seconds()):
        if settings.changes_length and control.rank == 0:
            run_directory.reopen(settings.output)
        first_step = PreTraining(settings, training, held_out, control, vocabulary.pieces).steps([0])
        settings = choice.choose_for_run(settings, lambda: next(first_step)[0], control)
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
        lifecycle.finish(opened, lambda run, out: export_usual(pretrained(run), out))
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


def open_data(
    settings: PretrainSettings, vocabulary: Vocabulary, places: Mapping[Path, Path] | None = None
) -> tuple[Mixture, dict[str, Collator]]:
    """Opens the training shards and, by name, the held-out shards.

    Held-out rows have the paper's masks whatever the masks of training, so that runs can be compared.

    Args:
        places: where this host reads each directory; None where the directories are.
    """
    at = {directory: directory for directory in (*settings.data, *settings.eval_data)} | dict(places or {})
    drawn_by = vocabulary.continues_word, settings.objective, settings.seed
    held_out = {
        name: open_mixture([at[directory]], [1], *drawn_by, MaskingSettings()).collators[0]
        for name, directory in zip(names_of(settings.eval_data), settings.eval_data)
    }
    here = [at[directory] for directory in settings.data]
    training = open_mixture(here, settings.corpus_weights, *drawn_by, settings.masking)
    return dataclasses.replace(training, names=names_of(settings.data)), held_out


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
    if settings.stage is None and (note := host_data.does_not_fit((*settings.data, *settings.eval_data))):
        details.append(note)
    lifecycle.introduce(opened, subject, training.rows, "rows", details)
