"""The work of `pipeline.pretrain`: checks the command, trains, and exports the model."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

from data_prep.text.vocabulary import Vocabulary
from model import AlbertForPreTraining
from pipeline.checkpoint import run_directory
from pipeline.checkpoint.initial_weights import fill_weights
from pipeline.data.collate import Collator
from pipeline.data.masking import MaskingSettings
from pipeline.data.mixture import Mixture, names_of, open_mixture
from pipeline.distributed import launcher
from pipeline.distributed.control import ControlGroup
from pipeline.distributed.exits import StopSignals
from pipeline.engine import workarounds
from pipeline.engine.hardware import detect_hardware, make_deterministic
from pipeline.pretraining import host_data
from pipeline.pretraining.distillation import Distillation
from pipeline.pretraining.host_data import Share
from pipeline.pretraining.resolve import PretrainSettings, resolve
from pipeline.pretraining.student import start_as_teacher
from pipeline.pretraining.task import PreTraining
from pipeline.run import lifecycle
from pipeline.run.launch import Prepared
from pipeline.settings.pretrain import PretrainFlags
from pipeline.sharing.export import export_usual
from pipeline.training.callbacks.step_metrics import Throughput
from pipeline.training.state import TrainingRun

SAMPLED_ROWS = 1024
"""Rows in which the pieces are counted for the start from a teacher."""


def prepare(flags: PretrainFlags, world_size: int) -> Prepared:
    """Checks a parsed command line for `world_size` ranks. Writes nothing. Raises UserError for a mistake."""
    if flags.deterministic:
        make_deterministic()
    hardware = detect_hardware()
    settings = resolve(flags, world_size, hardware)
    # A changed length is not another run: `lengths_of` has checked it.
    same = {"steps": settings.earlier_steps}
    lifecycle.check(settings, same, reopens=settings.changes_length)
    done = lifecycle.is_done(settings) and not settings.changes_length
    finished = f"{settings.output} is finished ({settings.steps} steps): nothing to do" if done else ""
    work = functools.partial(run, settings, hardware.name)
    facts = {"the length": str(settings.lengths), "what is skipped": str(settings.skipped_batches)}
    return lifecycle.prepare_runs(settings.output, [settings], [done], work, finished, facts)


def run(settings: PretrainSettings, device_name: str, check_unchanged: Callable[[], None]) -> int:
    """Trains to the end of the run and exports the model. Collective.

    Args:
        device_name: of the accelerator.
        check_unchanged: see `lifecycle.prepare_runs`.
    Returns:
        The exit status, see `lifecycle.train`.
    """
    vocabulary = Vocabulary.load(settings.data[0])
    workarounds.init_distributed()
    control = ControlGroup()
    directories = (*settings.data, *settings.eval_data)
    found = host_data.prepare(directories, settings.stage, control, Share.of_this_process(), settings.verify)
    training, held_out = open_data(settings, vocabulary, {d: here.place for d, here in zip(directories, found)})
    checksums = dict(found)
    for collator in (*training.collators, *held_out.values()):
        collator.shards.expect(checksums[collator.shards.directory])
    with run_directory.lock_run(settings.output, control, check_unchanged, launcher.lock_seconds()):
        if settings.changes_length and control.rank == 0:
            run_directory.reopen(settings.output)
        new_tensors: list[str] = []

        def make_filled_model() -> nn.Module:
            model = make_model(settings)
            new_tensors.extend(fill_initial(model, settings, training))
            return model

        opened = lifecycle.open_run(settings, make_filled_model, vocabulary, control)
        _print_header(opened, settings, training, new_tensors)
        task = make_task(settings, training, held_out, control)
        shape, precision = training.collators[0].shape, settings.engine.precision
        throughput = Throughput.of(settings.model, shape, control.world_size, device_name, precision)
        if status := lifecycle.train(opened, task, StopSignals(), throughput):
            return status
        lifecycle.finish(opened, export_usual)
        return 0


def make_task(
    settings: PretrainSettings, training: Mixture, held_out: Mapping[str, Collator], control: ControlGroup
) -> PreTraining:
    """Pre-training, or with a teacher distillation."""
    kind = PreTraining if settings.distilled is None else Distillation
    return kind(settings, training, held_out, control)


def make_model(settings: PretrainSettings) -> AlbertForPreTraining:
    """The model with random weights."""
    if settings.distilled is not None:
        return settings.distilled.make_student(settings.model, settings.execution)
    return AlbertForPreTraining(settings.model, settings.execution)


def fill_initial(model: AlbertForPreTraining, settings: PretrainSettings, training: Mixture | None) -> list[str]:
    """Gives `model` the weights of --init or, without it, those that follow from --teacher. Returns what stays random.

    It does nothing to a model of --init that a checkpoint will fill.

    Args:
        training: the text, whose pieces a start from --teacher counts.
    """
    initial = settings.initial
    if initial is None and settings.distilled is not None and training is not None:
        sample = training.read(np.arange(SAMPLED_ROWS)).input_ids
        counts = np.bincount(sample.reshape(-1), minlength=settings.model.vocab_size)
        return start_as_teacher(model, settings.distilled, torch.from_numpy(counts))
    if initial is None or initial.weights is None:
        return []
    same_sentence_task = initial.config.sentence_head == settings.model.sentence_head
    kept = fill_weights(
        model, initial.weights, lambda name: same_sentence_task or not name.startswith("sentence_head.")
    )
    initial.weights.tensors.clear()  # the settings live as long as the run
    return kept


def open_data(
    settings: PretrainSettings, vocabulary: Vocabulary, places: Mapping[Path, Path] | None = None
) -> tuple[Mixture, dict[str, Collator]]:
    """Opens the training shards and, by name, the held-out shards.

    Held-out rows have the paper's masks whatever the masks of training, so that runs can be compared. With a teacher
    they have those of training.

    Args:
        places: where this host reads each directory; None where the directories are.
    """
    at = {directory: directory for directory in (*settings.data, *settings.eval_data)} | dict(places or {})
    drawn_by = vocabulary.continues_word, settings.objective, settings.seed
    masking = MaskingSettings() if settings.distilled is None else settings.masking
    held_out = {
        name: open_mixture([at[directory]], [1], *drawn_by, masking).collators[0]
        for name, directory in zip(names_of(settings.eval_data), settings.eval_data)
    }
    here = [at[directory] for directory in settings.data]
    training = open_mixture(here, settings.corpus_weights, *drawn_by, settings.masking)
    return dataclasses.replace(training, names=names_of(settings.data)), held_out


def _print_header(
    opened: TrainingRun, settings: PretrainSettings, training: Mixture, new_tensors: Sequence[str]
) -> None:
    model, samples = settings.model, settings.steps * settings.engine.train_batch_size
    subject = [
        f"model: {model.num_hidden_layers} layers, hidden size {model.hidden_size}, vocabulary {model.vocab_size:,}"
    ]
    source = settings.initial or settings.distilled
    if source is not None and not opened.state.step:
        new = f"; new: {', '.join(new_tensors)}" if new_tensors else ""
        subject.append(f"weights from {source.directory}{new}")
        if settings.initial is not None and settings.initial.note:
            subject.append(settings.initial.note)
    if settings.distilled is not None:
        parts = ", ".join(f"{name} {weight:g}" for name, weight in settings.distilled.loss.items())
        subject.append(f"distilled from {settings.distilled.directory}: {parts}")
    rate = settings.schedule()
    for before, length in itertools.pairwise(settings.lengths):
        step = length.from_step
        subject.append(
            f"length changed after step {step:,}: {before.steps:,} -> {length.steps:,} steps; learning rate there: "
            f"{rate(step - 1):.3g} -> {rate(step):.3g}"
        )
    for first, end in settings.skipped_batches:
        subject.append(f"batches {first + 1:,} to {end:,} are left out")
    details = training.describe(samples)
    if not settings.eval_data:
        details.append("note: no --eval-data, so nothing is evaluated and no checkpoint counts as the best")
    lifecycle.print_header(opened, subject, training.rows, "rows", details)
