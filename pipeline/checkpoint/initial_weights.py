"""The trained model that a run starts from (--init): an export, a published model or a run. Loads a run's model."""

import contextlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
import xxhash
from torch import Tensor, nn

from common import PREFIX
from common.errors import UserError, one_line
from common.files.json_files import check_as, read_as
from data_prep.text.load_vocabulary import load_vocabulary
from data_prep.text.vocabulary import VOCABULARY_FILES, Vocabulary, find_vocabulary
from model import AlbertConfig, AlbertForPreTraining, checkpoint, huggingface
from model.albert import ModelWithHead
from pipeline.checkpoint import pooling
from pipeline.checkpoint.files import load_weights
from pipeline.checkpoint.retention import find_best, find_latest, step_of, tags
from pipeline.settings.finetune_flags import seed_directories
from pipeline.settings.run_settings import FinetuneSettings, PretrainSettings
from pipeline.settings.settings_file import SETTINGS, read_settings
from pipeline.tasks.own_tasks import Head, task_of
from pipeline.tasks.task import Task

M = TypeVar("M", bound=nn.Module)

HEAD_FILE = "head.json"  # beside albert.json: the task of the head in albert.safetensors
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_ENCODER = "albert."
_POOLER = "albert.pooler."
_POSITIONS = "albert.embeddings.position_embeddings.weight"
OF_PIECES = ("albert.embeddings.word_embeddings.weight", "mlm_head.bias")  # the tensors with a row for each piece
_COPY_VOCABULARY = "copy there the vocabulary that the model was trained with, from its run or its first export"


@dataclass(frozen=True)
class InitialWeights:
    """The weights of a trained model, heads included, by name in fp32; its configuration, vocabulary and head."""

    config: AlbertConfig
    tensors: dict[str, Tensor]
    vocabulary_file: Path
    vocabulary: Vocabulary
    head: Head

    def digest(self) -> str:
        """xxh3_128 of all tensors, in hexadecimal. A resumed run must start from the same digest."""
        state = xxhash.xxh3_128()
        for name in sorted(self.tensors):
            state.update(name.encode())
            state.update(self.tensors[name].contiguous().view(torch.uint8).numpy().tobytes())
        return str(state.hexdigest())


def read_initial_weights(source: Path, flag: str = "--init") -> InitialWeights:
    """Reads a directory that `transformers` or this project exported, or the --output of a run.

    Args:
        source: the directory, or a checkpoint of a pre-training run.
        flag: of the command line that names it, for messages.
    Raises:
        UserError: `source` holds no model, is damaged, or its vocabulary is missing or of another size.
    """
    place = _place_of_model(find_model(source, flag), flag)
    run = run_of_checkpoint(place) or place
    vocabulary_file = find_vocabulary(run)
    if not vocabulary_file.exists():
        raise UserError(f"{flag} {run} has no vocabulary (spiece.model, tokenizer.json, vocab.txt); {_COPY_VOCABULARY}")
    vocabulary = load_vocabulary(vocabulary_file, _COPY_VOCABULARY)
    file_ids = None
    head = Head()
    try:
        if (run / SETTINGS).exists():
            config = read_settings(run).model
            tensors = load_weights(place if place != run else run / "checkpoints")
        elif (place / huggingface.CONFIG_FILE).exists():
            config, tensors, fields = huggingface.read(place)
            file_ids = vocabulary.file_ids
            remedy = "write the export again"
            head = check_as(fields, Head, place / huggingface.CONFIG_FILE, remedy, extra="ignore")
        else:
            config, tensors = checkpoint.read(place)
            if (place / HEAD_FILE).exists():
                head = read_as(place / HEAD_FILE, Head, "write the export again", extra="ignore")
    except UserError:
        raise
    except ValueError as error:
        raise UserError(f"{flag} {source}: {error}") from None
    if len(vocabulary) != config.vocab_size:
        raise UserError(
            f"{vocabulary_file} has {len(vocabulary)} pieces and the model beside it a vocab_size of "
            f"{config.vocab_size}; replace it by the vocabulary that the model was trained with"
        )
    if wrong := next((name for name, tensor in tensors.items() if not tensor.isfinite().all()), ""):
        raise UserError(f"{flag} {source}: {wrong} holds NaN or infinity; name another model")
    if file_ids is not None:
        tensors |= {name: tensors[name][torch.from_numpy(file_ids)] for name in OF_PIECES if name in tensors}
    return InitialWeights(config, tensors, vocabulary_file, vocabulary, head)


def restore_file_ids(model: nn.Module, vocabulary: Vocabulary) -> None:
    """Gives the pieces of a model the ids that they have in the file of its vocabulary, as an export needs them."""
    if vocabulary.file_ids is not None:
        order = torch.from_numpy(vocabulary.file_ids)  # (V,)
        state = model.state_dict()
        for name in OF_PIECES:
            if name in state:
                state[name][order] = state[name].clone()  # in place


def find_model(source: Path, flag: str = "--init") -> Path:
    """The directory `source`, or a copy of the model that the hub calls so (OWNER/NAME), in the hub's cache.

    Raises UserError if there is no such directory, and no such model or no network.
    """
    if source.is_dir():
        return source
    if os.path.lexists(source) or _HUB_NAME.fullmatch(str(source)) is None:
        raise UserError(f"{flag} {source} is not a directory; name an exported model, a run, or OWNER/NAME of the hub")
    # These take a third of a second. The package loads its modules when they are named, so each is imported.
    import huggingface_hub
    from huggingface_hub.utils import disable_progress_bars

    safe = [*VOCABULARY_FILES, "tokenizer_config.json", HEAD_FILE, *pooling.FILES]
    safe += [huggingface.CONFIG_FILE, huggingface.WEIGHTS_FILE, checkpoint.CONFIG_FILE, checkpoint.WEIGHTS_FILE]
    pickled, endpoint = [huggingface.PICKLED_WEIGHTS_FILE], os.environ.get("HF_ENDPOINT") or None
    disable_progress_bars()
    try:
        place = Path(huggingface_hub.snapshot_download(str(source), endpoint=endpoint, allow_patterns=safe))
        if not any((place / name).exists() for name in (huggingface.WEIGHTS_FILE, checkpoint.WEIGHTS_FILE)):
            huggingface_hub.snapshot_download(str(source), endpoint=endpoint, allow_patterns=pickled)
    # The client raises errors of many types: its own, the network's and those of files.
    except Exception as error:
        reason = one_line(error).partition(" An error happened")[0]
        raise UserError(
            f"{flag} {source}: there is no such directory, and the hub gives no model of this name ({reason}); name "
            "the --output of a run or an export, or check the network and HF_TOKEN for a model of the hub"
        ) from None
    return place


def run_of_checkpoint(source: Path) -> Path | None:
    """The run that `source` is a checkpoint of (RUN/checkpoints/step-N); None if it has no such name."""
    run = source.parent.parent
    return run if source in tags(run / "checkpoints") and (run / SETTINGS).exists() else None


def _place_of_model(source: Path, flag: str) -> Path:
    if (run := run_of_checkpoint(source)) is not None and isinstance(read_settings(run), PretrainSettings):
        return source
    if (source / SETTINGS).exists():
        if isinstance(read_settings(source), PretrainSettings):
            return source
        if not (source / "export").exists():
            remedy = "finish it, or name another"
            if (source / "done").exists():
                remedy = f"make it by python -m {PREFIX}pipeline.export --run {source} --out {source / 'export'}"
            raise UserError(f"{flag} {source} is a fine-tuning run without its export; {remedy}")
        return source / "export"  # the best step of a fine-tuned run
    if (source / "results.json").exists():
        first = next(iter(seed_directories(source, SETTINGS)), source / "seed-0")
        raise UserError(f"{flag} {source} holds a run of several seeds; name one of them, such as {first}")
    if not any((source / name).exists() for name in (huggingface.CONFIG_FILE, checkpoint.CONFIG_FILE)):
        raise UserError(f"{flag} {source} holds no model; name an exported model, or the --output of a run")
    return source


def fill_weights(model: nn.Module, initial: InitialWeights, has_head: Callable[[str], bool]) -> list[str]:
    """Copies the weights into `model`: those of the encoder, and those of the heads that suit it.

    If the model has more positions than the weights, the first ones are copied and the others stay random. `has_head`
    says whether a tensor of a head, by name, means the same in both. Returns what keeps its random values: the tensors
    of a new head or a new pooler, and the new positions. Raises UserError: the weights lack a tensor of the encoder, or
    have it with other sizes.
    """
    kept = []
    for name, tensor in model.state_dict().items():
        given = initial.tensors.get(name)
        of_encoder = name.startswith(_ENCODER)
        if given is not None and given.shape == tensor.shape and (of_encoder or has_head(name)):
            tensor.copy_(given)
        elif (
            given is not None
            and name == _POSITIONS
            and given.shape[1:] == tensor.shape[1:]
            and len(given) < len(tensor)
        ):
            tensor[: len(given)].copy_(given)  # (positions, E)
            kept.append(f"the positions {len(given)} to {len(tensor) - 1} of {name}")
        elif of_encoder and (given is not None or not name.startswith(_POOLER)):
            shape = "not at all" if given is None else f"in the shape {tuple(given.shape)}"
            raise UserError(
                f"--init has the tensor {name} {shape}, but the model needs it in the shape {tuple(tensor.shape)}; "
                "name a model of the same kind"
            )
        else:
            kept.append(name)
    return kept


def load_into(model: M, tensors: Mapping[str, Tensor], run: Path) -> M:
    """Gives `tensors` to `model`, which may have no memory yet, and returns it in evaluation mode.

    Raises UserError: they are not those of the model in `run`'s settings.json.
    """
    try:
        checkpoint.check_tensors(run, model.state_dict(), tensors)
    except ValueError as error:
        raise UserError(f"{error}; restore settings.json and checkpoints of one run") from None
    model.load_state_dict(tensors, assign=True)
    return model.eval()


def task_of_run(run: Path) -> Task | None:
    """The task of a fine-tuning run; None for pre-training. UserError: there is no run, or its record is damaged."""
    settings = read_settings(run)
    if isinstance(settings, PretrainSettings):
        return None
    return task_of(settings.task, settings.own_task, run / SETTINGS)


def exported_checkpoint(run: Path, step: int | None = None) -> Path:
    """The checkpoint of a run that is exported. Raises UserError: there is none, or no run.

    It is that of `step`; by default the newest complete one of pre-training, and the best one of fine-tuning, or the
    newest if none has a score.
    """
    checkpoints, settings = run / "checkpoints", read_settings(run)
    if step is not None:
        steps = {step_of(tag): tag for tag in reversed(tags(checkpoints))}
        if step not in steps:
            there = ", ".join(map(str, steps)) or "none"
            raise UserError(f"{run} has no checkpoint of step {step}; its steps: {there}; name another")
        return steps[step]
    if isinstance(settings, PretrainSettings):
        found = find_latest(checkpoints, content=True)
    else:
        found = find_best(checkpoints) or find_latest(checkpoints)
    if found is None:
        raise UserError(f"{checkpoints} holds no complete checkpoint; train first, or name another run")
    return found


def load_run(run: Path, tag: Path | None = None) -> ModelWithHead:
    """The model of a run's checkpoint, by default of the exported one: fp32, on the CPU, in evaluation mode."""
    config, task = read_settings(run).model, task_of_run(run)
    with torch.device("meta"):
        model = task.kind.make_model(task, config) if task else AlbertForPreTraining(config)
    return load_into(model, load_weights(tag or exported_checkpoint(run)), run)


@dataclass(frozen=True)
class InitialModel:
    """A trained model, read at the first start and known from the run's settings later."""

    directory: Path  # that the command line names
    digest: str  # of the weights
    config: AlbertConfig
    vocabulary: Vocabulary
    weights: InitialWeights | None  # None if all runs have checkpoints: then the directory is not read again
    pretraining: PretrainSettings | None  # the record of the pre-training that it comes from; None if there is none


def record_of(initial: InitialModel | None) -> dict[str, Any]:
    """The fields of `RunSettings` that tell what a run starts from."""
    if initial is None:
        return {}
    init = str(initial.directory.resolve())
    return {"init": init, "init_weights": initial.digest, "init_model": initial.config}


def find_initial_model(init: Path | None, runs: Sequence[Path]) -> InitialModel | None:
    """What the runs in these directories start from; None for random weights.

    Raises UserError: `init` holds no model, or the runs were started with another --init, or without.
    """
    begun = {run: read_settings(run) for run in runs if (run / SETTINGS).exists()}
    for run, record in begun.items():
        if (init is None) != (record.init is None):
            before = "without --init" if record.init is None else f"with --init {record.init}"
            raise UserError(f"{run} was started {before}; give the same to resume the run, or choose another --output")
    if init is None:
        return None
    recorded = next(iter(begun.values()), None)
    # The run that --init named may have gone on since.
    pretraining = recorded.pretraining if isinstance(recorded, FinetuneSettings) else _pretraining_of(init)
    place, own = str(init.resolve()), [run for run in begun if (run / "done").exists() or tags(run / "checkpoints")]
    if recorded is not None and len(own) == len(runs) and all(one.init == place for one in begun.values()):
        assert recorded.init_model is not None
        assert recorded.init_weights is not None
        return InitialModel(
            init, recorded.init_weights, recorded.init_model, load_vocabulary(runs[0]), None, pretraining
        )
    weights = read_initial_weights(init)
    return InitialModel(init, weights.digest(), weights.config, weights.vocabulary, weights, pretraining)


def _pretraining_of(init: Path) -> PretrainSettings | None:
    """The record of the pre-training that `init` comes from: a run, an export in it, or a fine-tuning run."""
    run = next((directory for directory in (init, init.parent) if (directory / SETTINGS).exists()), None)
    with contextlib.suppress(UserError, OSError):  # a damaged record of another run; it is for the model card only
        record = None if run is None else read_settings(run)
        return record.pretraining if isinstance(record, FinetuneSettings) else record
    return None
