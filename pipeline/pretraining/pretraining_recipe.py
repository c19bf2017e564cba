"""Pre-training as a `Recipe`; with a teacher, distillation."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from common.environment import whole_number
from data_prep.text.vocabulary import Vocabulary
from model import AlbertForPreTraining
from model.config import NEIGHBOURS
from pipeline.data.collate import Collator
from pipeline.data.masking import MaskingSettings
from pipeline.data.mixture import Mixture, names_of, open_mixture
from pipeline.distributed.control import ControlGroup
from pipeline.engine.hardware import detect_hardware, make_deterministic, missing_for_compilation
from pipeline.pretraining.corpora import check_on_hosts, describe_missing_labels
from pipeline.pretraining.distillation_task import Distillation
from pipeline.pretraining.plateau import Plateau, context_free_losses
from pipeline.pretraining.pretrain_settings import PretrainSettings, resolve
from pipeline.pretraining.pretraining_task import PreTraining
from pipeline.pretraining.student import Teacher, start_as_teacher
from pipeline.run import start
from pipeline.run.launch import Prepared
from pipeline.run.recipe import Header, Recipe
from pipeline.settings.pretrain_flags import PretrainFlags
from pipeline.training.step_metrics import Throughput
from pipeline.training.training_run import Callback, TrainingRun
from pipeline.training.training_task import TrainingTask

SAMPLED_ROWS = 1024
"""Rows in which the pieces are counted for the start from a teacher."""


def prepare(flags: PretrainFlags, world_size: int) -> Prepared:
    """Checks a parsed command line for `world_size` ranks. Writes nothing. Raises UserError for a mistake."""
    if flags.deterministic:
        make_deterministic()
    settings, initial, teacher = resolve(flags, world_size, detect_hardware())
    vocabulary = Vocabulary.load(settings.data[0])
    return start.prepare(flags.output, [PretrainRecipe(flags, settings, vocabulary, initial, teacher)])


@dataclass
class PretrainRecipe(Recipe):
    """A pre-training run.

    Attributes:
        teacher: whose states are learned; None without distillation.
    """

    flags: PretrainFlags
    settings: PretrainSettings
    teacher: Teacher | None

    @property
    def is_done(self) -> bool:
        """See `Recipe`."""
        return super().is_done and not self.settings.changes_length

    @property
    def reopens(self) -> bool:
        """See `Recipe`."""
        return self.settings.changes_length

    def facts(self) -> Mapping[str, str]:
        """See `Recipe`."""
        compiles = self.flags.compile != "off" and self.settings.engine.device != "CPU"
        missing = missing_for_compilation() if compiles else ""
        return {
            "what torch.compile finds (or give --compile off)": missing or "all that it needs",
            "the length": str(self.settings.steps),
            "what is skipped": str(self.settings.skipped_batches),
        }

    def open(self, control: ControlGroup) -> PreTraining:
        """Checks the shards on each host, and opens them. See `Recipe`."""
        flags = self.flags
        training, held_out = open_data(self.settings, self.vocabulary, self.teacher is not None)
        if flags.verify == "always":
            directories = (*self.settings.data, *flags.eval_data)
            check_on_hosts(directories, control, is_first=whole_number("LOCAL_RANK") == 0)
        if self.teacher is not None:
            return Distillation(self.settings, training, held_out, control, self.teacher.loss)
        return PreTraining(self.settings, training, held_out, control)

    def make_model(self, task: TrainingTask) -> nn.Module:
        """With a teacher, a student that begins as the teacher, unless --init fills it. See `Recipe`."""
        settings = self.settings
        if self.teacher is None:
            return AlbertForPreTraining(settings.model, settings.execution)
        model = self.teacher.make_student(settings.model, settings.execution)
        if self.initial is None:
            assert isinstance(task, PreTraining)
            sample = task.training.read(np.arange(SAMPLED_ROWS)).input_ids
            counts = np.bincount(sample.reshape(-1), minlength=settings.model.vocab_size)
            start_as_teacher(model, self.teacher, torch.from_numpy(counts))
        return model

    def has_head(self, name: str) -> bool:
        """See `Recipe`."""
        assert self.initial is not None
        same_sentence_task = self.initial.config.sentence_head == self.settings.model.sentence_head
        return same_sentence_task or not name.startswith("sentence_head.")

    def header(self, task: TrainingTask, new_tensors: Sequence[str] | None) -> Header:
        """See `Recipe`."""
        assert isinstance(task, PreTraining)
        settings, model = self.settings, self.settings.model
        subject = [
            f"model: {model.num_hidden_layers} layers, hidden size {model.hidden_size}, vocabulary {model.vocab_size:,}"
        ]
        if self.initial is not None and new_tensors is not None:
            new = f"; new: {', '.join(new_tensors)}" if new_tensors else ""
            subject.append(f"weights from {self.initial.directory}{new}")
        if self.teacher is not None:
            parts = ", ".join(f"{name} {weight:g}" for name, weight in self.teacher.loss.items())
            subject.append(f"distilled from {self.teacher.directory}: {parts}")
        if settings.changes_length:
            subject.append(f"length changed: {settings.earlier_steps:,} -> {settings.steps:,} steps")
        if settings.changes_held_out:
            subject.append("other held-out text than before: the best checkpoint is chosen anew")
        subject += [f"batches {first + 1:,} to {end:,} are left out" for first, end in settings.skipped_batches]
        details = task.training.describe(settings.steps * settings.engine.train_batch_size)
        counts = [collator.shards.manifest.counts for collator in task.training.collators]
        if fault := describe_missing_labels(counts, settings.objective):
            details.append(f"note: {fault}")
        if not task.evaluates:
            details.append("note: no --eval-data, so nothing is evaluated and no checkpoint counts as the best")
        return Header(subject, task.training.rows, "rows", details)

    def callbacks(self, run: TrainingRun, task: TrainingTask) -> Sequence[Callback]:
        """See `Recipe`."""
        assert isinstance(task, PreTraining)
        if self.teacher is not None or not run.is_rank_0:
            return ()
        losses = functools.partial(context_free_losses, task.training, self.settings.masking)
        remedy = "another learning rate"
        if self.settings.model.initial_attention != NEIGHBOURS:
            remedy += ", or --model-args initial_attention=neighbours embedding_initializer_range=0.1"
        return [Plateau(run, losses, self.settings.warmup_steps, remedy)]

    def throughput(self, task: TrainingTask, world_size: int) -> Throughput:
        """See `Recipe`."""
        assert isinstance(task, PreTraining)
        engine, shape = self.settings.engine, task.training.collators[0].shape
        return Throughput.of(self.settings.model, shape, world_size, engine.device, engine.precision)


def open_data(
    settings: PretrainSettings, vocabulary: Vocabulary, distils: bool = False
) -> tuple[Mixture, dict[str, Collator]]:
    """Opens the training shards and, by name, the held-out shards.

    Held-out rows have the paper's masks whatever the masks of training, so that runs can be compared. With a teacher
    (`distils`) they have those of training.
    """
    eval_data = settings.flags.eval_data
    sampled_by = vocabulary.continues_word, settings.objective, settings.flags.seed
    masking = settings.masking if distils else MaskingSettings()
    held_out = {
        name: open_mixture([directory], [1], *sampled_by, masking).collators[0]
        for name, directory in zip(names_of(eval_data), eval_data)
    }
    training = open_mixture(settings.data, settings.corpus_weights, *sampled_by, settings.masking)
    return training, held_out
