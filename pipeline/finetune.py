"""Fine-tunes a pre-trained model on a task of the paper and evaluates it. The same command again goes on.

All GPUs of this machine (or, without any, its processor), with the paper's hyperparameters:

    deepspeed --module pipeline.finetune --task sst2 --init runs/base --data GLUE/SST-2 --output runs/base-sst2

The median of five seeds, and one that starts from the MNLI model as the paper does:

    deepspeed --module pipeline.finetune --task mnli --init runs/base --data GLUE/MNLI --output runs/base-mnli --seeds 5
    deepspeed --module pipeline.finetune --task rte --init runs/base-mnli/seed-0 --data GLUE/RTE --output runs/base-rte

Without the launcher it is one rank: `python -m pipeline.finetune ...`.

Exit status of a rank: 0 done, or nothing left to do; 1 failed; 2 a mistake in what was asked for; 69 another rank or
host was lost; 75 stopped by SIGTERM, SIGUSR1 or Ctrl-C after saving. After 69 and 75, start it again.
"""

import argparse
import gc
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from data_prep import atomic
from data_prep.errors import UserError
from pipeline import launch, runs
from pipeline.control import run_and_leave
from pipeline.tasks.task import find_task

if TYPE_CHECKING:
    from pipeline.control import Control, StopSignals
    from pipeline.finetune_settings import FinetuneSettings
    from pipeline.initial import Initial
    from pipeline.tasks.examples import Splits
    from pipeline.tasks.features import Features


class Prepared(NamedTuple):
    """A command that has been checked.

    Attributes:
        args: the parsed command line.
        settings: of each seed's run.
        finished: see `launch.Checked`.
    """

    args: argparse.Namespace
    initial: "Initial"
    splits: "Splits"
    settings: "list[FinetuneSettings]"
    finished: str

    @property
    def host_timeout(self) -> float:
        """See `launch.Checked`."""
        return float(self.args.host_timeout)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns the exit status."""
    words = sys.argv[1:] if argv is None else argv
    return launch.run(lambda world_size: _prepare(words, world_size), _facts, _run)


def _prepare(argv: Sequence[str], world_size: int) -> Prepared:
    """Checks the command line and reads what it names. Writes nothing; raises UserError for what cannot work."""
    from pipeline import defects, engine_config, finetune_settings
    from pipeline.initial import read_initial
    from pipeline.tasks import reading
    from pipeline.tasks.run_results import is_summed_up

    args = finetune_settings.parse(argv)
    task = find_task(args.task)
    splits = reading.read(task, args.data)
    if "train" not in splits:
        raise UserError(f"--data {args.data} holds no training examples of {task.name}; it has {', '.join(splits)}")
    if args.patience is not None and not set(task.dev_splits) & splits.keys():
        raise UserError(f"--patience waits for a better evaluation, but --data {args.data} has no dev set; drop it")
    initial = read_initial(args.init)
    hardware = engine_config.detect_hardware()
    digests = initial.digest(), _digest(splits)
    all_settings = [
        finetune_settings.resolve(args, world_size, hardware, initial.config, *digests, seed)
        for seed in finetune_settings.seeds_of(args)
    ]
    defects.refuse_what_is_wrong(all_settings[0].engine.json)
    for settings in all_settings:
        runs.check_earlier(settings.output, settings.identity())
    _check_form(args)
    done = all(_is_done(settings) for settings in all_settings)
    if args.seeds is not None:
        done = done and is_summed_up(args.output, [settings.output for settings in all_settings])
    finished = f"{args.output} is finished: nothing to do" if done else ""
    return Prepared(args, initial, splits, all_settings, finished)


def _facts(prepared: Prepared) -> dict[str, str]:
    """What the ranks must agree on, though each reads files of its own host."""
    first = prepared.settings[0]
    states = []
    for settings in prepared.settings:
        begun = (settings.output / "settings.json").exists()
        states.append("finished" if _is_done(settings) else "begun" if begun else "not there")
    facts = {f"the setting {name}": json.dumps(value, sort_keys=True) for name, value in first.identity().items()}
    return facts | {f"the run in {prepared.args.output}": ", ".join(states), "the precision": first.engine.precision}


def _is_done(settings: "FinetuneSettings") -> bool:
    return (settings.output / "done").exists()


def _run(prepared: Prepared) -> int:
    from pipeline import defects
    from pipeline.control import Control, StopSignals
    from pipeline.finetuning import make_features
    from pipeline.tasks.run_results import write_summary

    args, initial, splits, all_settings, _ = prepared
    defects.init_distributed()
    control = Control()
    _lock = runs.take(args.output, control)  # until this process ends
    first = all_settings[0]
    features = make_features(first.task, initial.vocabulary, splits, first.max_length, first.limits)
    signals = StopSignals()  # one that comes between two seeds ends the second
    for settings in all_settings:
        if not _is_done(settings) and (status := _run_seed(settings, initial, splits, features, control, signals)):
            return status
        gc.collect()  # an engine refers to itself, and would keep its device memory beside the next one's
    if args.seeds is not None and control.rank == 0:
        write_summary(args.output, [settings.output for settings in all_settings])
    control.barrier()
    return 0


def _run_seed(
    settings: "FinetuneSettings",
    initial: "Initial",
    splits: "Splits",
    features: "dict[str, Features]",
    control: "Control",
    signals: "StopSignals",
) -> int:
    """Trains one seed to its end, predicts with its best step and writes what came of it. Returns an exit status."""
    import torch

    from pipeline import checkpoint_files, checkpoints, export
    from pipeline.engine import initialise
    from pipeline.finetuning import FineTuning
    from pipeline.heads import make_model
    from pipeline.initial import fill
    from pipeline.monitor import Monitor
    from pipeline.tasks.run_results import write_results
    from pipeline.trainer import Position, Trainer

    if control.rank == 0:
        runs.write(settings.output, settings.to_dict(), initial.vocabulary_file)
    control.barrier()

    torch.manual_seed(settings.seed)
    model = make_model(settings.task, settings.model, settings.implementation)
    new = [] if settings.random_weights else fill(model, initial, settings.task.name)
    engine, description = initialise(model, settings.engine)
    saved = checkpoints.load_latest(engine, settings.output / "checkpoints")
    position = Position() if saved is None else Position(**saved)
    if control.rank == 0:
        _introduce(settings, features, description, new, position.step)

    monitor = Monitor(settings.output, position.step, enabled=control.rank == 0)
    workload = FineTuning(settings, features, control)
    trainer = Trainer(
        settings,
        engine,
        settings.schedule(),
        workload,
        control,
        monitor,
        position,
        kept_checkpoints=1,
        patience=settings.patience,
        signals=signals,
    )
    if status := launch.train(trainer):
        return status

    best = export.best_checkpoint(settings.output)
    model = make_model(settings.task, settings.model)
    model.load_state_dict(checkpoints.load_weights(best))
    counts = {split: len(examples) for split, examples in splits.items()}
    model = model.to(engine.device, next(engine.module.parameters()).dtype)
    write_results(settings, model, features, counts, control, position.step, checkpoint_files.step_of(best))
    if control.rank == 0:
        form = export.export_run(settings.output, settings.output / "export")
        atomic.write_text(settings.output / "done", f"{position.step}\n")
        step = checkpoint_files.step_of(best)
        print(
            f"finished after {position.step} steps: {settings.output / 'export'} holds the model of step {step} {form}"
        )
    control.barrier()
    return 0


def _check_form(args: argparse.Namespace) -> None:
    """Raises UserError where --output holds a run of one seed and several are asked for, or the other way round."""
    single = (args.output / "settings.json").exists()
    several = any(args.output.glob("seed-*/settings.json"))
    if single and args.seeds is not None:
        raise UserError(f"{args.output} holds a run of one seed; leave --seeds out, or choose another --output")
    if several and args.seeds is None:
        raise UserError(f"{args.output} holds runs of several seeds; give --seeds, or choose another --output")


def _digest(splits: "Splits") -> str:
    """xxh3_128 of all examples, in hexadecimal."""
    import xxhash

    state = xxhash.xxh3_128()
    for split in sorted(splits):
        state.update(split.encode())
        for example in splits[split]:
            state.update(repr(example).encode())
    return str(state.hexdigest())


def _introduce(
    settings: "FinetuneSettings", features: "dict[str, Features]", description: str, new: Sequence[str], step: int
) -> None:
    engine, training = settings.engine, features["train"]
    units = len(training.lengths)
    counts = ", ".join(f"{split} {found.examples:,}" for split, found in features.items())
    weights = "random weights" if settings.random_weights else f"weights from {settings.init}"
    fresh = f"; new: {', '.join(new)}" if new else ""
    print(
        f"task: {settings.task.name}, seed {settings.seed}; examples: {counts}",
        f"model: {weights}{fresh}",
        description,
        f"batch: {engine.train_batch_size} = {engine.micro_batch_size} x {engine.accumulation_steps} accumulated x "
        f"{engine.world_size} ranks; {settings.steps:,} steps = "
        f"{settings.steps * engine.train_batch_size / units:.2f} epochs of {units:,}",
        f"learning rate: {engine.learning_rate:g} after {settings.warmup_steps:,} steps; "
        f"longest sequence {settings.max_length}",
        f"precision: {engine.precision}, ZeRO stage {engine.zero_stage}",
        *(f"note: {note}" for note in engine.notes),
        *([f"resuming from step {step}"] if step else []),
        sep="\n",
        flush=True,
    )


if __name__ == "__main__":
    run_and_leave(main)
