"""Pre-trains ALBERT with DeepSpeed. Started again with the same --output, it goes on where it was.

One machine, all of its GPUs (or, without any, its processor):

    deepspeed --module pipeline.pretrain --model albert-base --data shards/train --eval-data shards/held_out \\
        --deepspeed_config ds_configs/base.json --output runs/base

Two ranks on a laptop's processor:

    deepspeed --num_accelerators 2 --module pipeline.pretrain --model albert-tiny --data shards/train \\
        --deepspeed_config ds_configs/tiny.json --output runs/tiny --steps 1000

Several machines, over ssh (pdsh):

    deepspeed --hostfile hostfile --module pipeline.pretrain --model albert-xxlarge --data shards/train \\
        --eval-data shards/held_out --deepspeed_config ds_configs/xxlarge.json --output runs/xxlarge

Three samples of Wikipedia for each one of books, evaluated apart:

    deepspeed --module pipeline.pretrain --model albert-base --data shards/wikipedia:3 shards/books:1 \\
        --eval-data held_out/wikipedia held_out/books --deepspeed_config ds_configs/base.json --output runs/mixed

Exit status of a rank: 0 done, or nothing left to do; 1 failed; 2 a mistake in what was asked for; 69 another rank or
host was lost; 75 stopped by SIGTERM, SIGUSR1 or Ctrl-C after saving. After 69 and 75, start it again. What a launcher
makes of these: docs/cluster.md.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from data_prep import atomic
from data_prep.errors import UserError
from data_prep.shards import read_manifest
from data_prep.verify import problem_of
from pipeline import launch, runs
from pipeline import settings as run_settings
from pipeline.control import Control, run_and_leave
from pipeline.settings import Settings

if TYPE_CHECKING:
    from pipeline.corpora import Corpora


class Prepared(NamedTuple):
    """A command that has been checked. device_name: of the accelerator; finished: see `launch.Checked`."""

    settings: Settings
    device_name: str
    finished: str

    @property
    def host_timeout(self) -> float:
        """See `launch.Checked`."""
        return self.settings.host_timeout


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns the exit status."""
    words = sys.argv[1:] if argv is None else argv
    return launch.run(lambda world_size: _prepare(words, world_size), _facts, _run)


def _prepare(argv: Sequence[str], world_size: int) -> Prepared:
    """Checks the command line. Writes nothing; raises UserError for what cannot work."""
    args = run_settings.parse(argv)
    from pipeline import engine_config

    hardware = engine_config.detect_hardware()
    settings = run_settings.resolve(args, world_size, hardware)
    runs.check_earlier(settings.output, settings.identity())
    done = (settings.output / "done").exists()
    finished = f"{settings.output} is finished ({settings.steps} steps): nothing to do" if done else ""
    return Prepared(settings, hardware.name, finished)


def _facts(prepared: Prepared) -> dict[str, str]:
    """What the ranks must agree on, though each reads files of its own host."""
    settings = prepared.settings
    begun = (settings.output / "settings.json").exists()
    state = "finished" if prepared.finished else "begun" if begun else "not there"
    facts = {f"the setting {name}": json.dumps(value, sort_keys=True) for name, value in settings.identity().items()}
    return facts | {f"the run in {settings.output}": state, "the precision": settings.engine.precision}


def _run(prepared: Prepared) -> int:
    settings = prepared.settings
    import torch

    from data_prep.vocabulary import Vocabulary
    from model import AlbertForPreTraining
    from pipeline import checkpoints, defects, export, schedule
    from pipeline.corpora import names_of, open_corpora
    from pipeline.engine import initialise
    from pipeline.monitor import Monitor
    from pipeline.pretraining import PreTraining
    from pipeline.throughput import Throughput
    from pipeline.trainer import Position, Trainer

    defects.refuse_what_is_wrong(settings.engine.json)
    rates = schedule.from_config(
        settings.engine.json.get("scheduler"),
        settings.engine.learning_rate,
        settings.warmup_steps,
        settings.steps,
    )
    vocabulary = Vocabulary.load(settings.data[0] / "spiece.model")
    continues_word = vocabulary.continues_word
    training = open_corpora(settings.data, settings.shares, continues_word, settings.objective, settings.seed)
    held_out = {
        name: open_corpora([directory], [1], continues_word, settings.objective, settings.seed).readers[0]
        for name, directory in zip(names_of(settings.eval_data), settings.eval_data)
    }

    defects.init_distributed()
    control = Control()
    for directory in (*settings.data, *settings.eval_data):
        _check_contents(directory, control)
    _lock = runs.take(settings.output, control)  # until this process ends
    if control.rank == 0:
        runs.write(settings.output, settings.to_dict(), settings.data[0] / "spiece.model")
    control.barrier()

    torch.manual_seed(settings.seed)
    engine, description = initialise(AlbertForPreTraining(settings.model, settings.implementation), settings.engine)
    saved = checkpoints.load_latest(engine, settings.output / "checkpoints")
    position = Position() if saved is None else Position(**saved)
    if control.rank == 0:
        _introduce(settings, training, description, position.step)

    monitor = Monitor(settings.output, position.step, enabled=control.rank == 0)
    workload = PreTraining(settings, training, held_out, control, vocabulary.pieces)
    precision = settings.engine.precision
    speed = Throughput.of(
        settings.model, training.readers[0].shape, control.world_size, prepared.device_name, precision
    )
    trainer = Trainer(settings, engine, rates, workload, control, monitor, position, speed)
    if status := launch.train(trainer):
        return status
    if control.rank == 0:
        form = export.export_run(settings.output, settings.output / "export")
        atomic.write_text(settings.output / "done", f"{position.step}\n")
        print(f"finished after {position.step} steps: {settings.output / 'export'} holds the model {form}")
    control.barrier()
    return 0


def _check_contents(directory: Path, control: Control) -> None:
    """Checks every byte of a shard set, its files divided among the ranks. Raises UserError on all ranks. Collective.

    At disk speed, once a start: little beside the GPU-months that a flipped bit would go into.
    """
    manifest = read_manifest(directory)
    mine = manifest.files[control.rank :: control.world_size]
    problem = next(filter(None, (problem_of(directory, file, manifest) for file in mine)), "")
    if found := control.first_problem(problem):
        raise UserError(
            f"{directory} is damaged: {found}; run `python -m data_prep verify {directory}` for the whole list"
        )


def _introduce(settings: Settings, training: "Corpora", description: str, step: int) -> None:
    engine, rows = settings.engine, training.rows
    samples = settings.steps * engine.train_batch_size
    print(
        f"model: {asdict(settings.model)['num_hidden_layers']} layers, hidden size {settings.model.hidden_size}, "
        f"vocabulary {settings.model.vocab_size:,}\n{description}\n"
        f"batch: {engine.train_batch_size} rows = {engine.micro_batch_size} x {engine.accumulation_steps} "
        f"accumulated x {engine.world_size} ranks; {settings.steps:,} steps = "
        f"{samples / rows:.2f} epochs of {rows:,} rows\n"
        f"precision: {engine.precision}, ZeRO stage {engine.zero_stage}",
        *training.describe(samples),
        *(f"note: {note}" for note in engine.notes),
        *([f"resuming from step {step}"] if step else []),
        sep="\n",
        flush=True,
    )


if __name__ == "__main__":
    run_and_leave(main)
