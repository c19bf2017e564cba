"""What fine-tuning starts from: an export, a pre-training run, or a run that was fine-tuned on another task."""

from dataclasses import dataclass
from pathlib import Path

import torch
import xxhash
from torch import Tensor, nn

from data_prep.errors import UserError
from data_prep.vocabulary import Vocabulary
from model import AlbertConfig, checkpoint, huggingface
from pipeline import checkpoints, runs
from pipeline.tasks.results import read_json

HEAD_FILE = "head.json"
"""Beside albert.json: the task that the head in albert.safetensors was trained for."""

_ENCODER = "albert."
_POOLER = "albert.pooler."


@dataclass(frozen=True)
class Initial:
    """Weights, fp32, with what belongs to them.

    Attributes:
        config: of the model that they were trained in.
        tensors: by name; those of heads included.
        vocabulary: its file, and what is in it.
        task: the task that they were fine-tuned on; None after pre-training.
    """

    config: AlbertConfig
    tensors: dict[str, Tensor]
    vocabulary_file: Path
    vocabulary: Vocabulary
    task: str | None

    def digest(self) -> str:
        """xxh3_128 of all tensors, in hexadecimal: what a resumed run must still start from."""
        state = xxhash.xxh3_128()
        for name in sorted(self.tensors):
            state.update(name.encode())
            state.update(self.tensors[name].contiguous().view(torch.uint8).numpy().tobytes())
        return str(state.hexdigest())


def read_initial(source: Path, flag: str = "--init") -> Initial:
    """Reads what `flag` names: a directory that `transformers` or this project exported, or the --output of a run.

    Raises:
        UserError: nothing of the kind is there, it is damaged, or its vocabulary is missing or of another size.
    """
    place = source
    if (source / "results.json").exists() and not (source / "export").exists():
        raise UserError(f"{flag} {source} holds a run of several seeds; name one of them, such as {source / 'seed-0'}")
    if (source / "settings.json").exists() and "task" in runs.read_settings(source):
        place = source / "export"  # the best step of a fine-tuned run
        if not place.exists():
            raise UserError(f"{flag} {source} is a fine-tuning run that has not ended; end it, or name another one")
    task = None
    try:
        if (place / "settings.json").exists():
            config = AlbertConfig.from_dict(runs.read_settings(place)["model"])
            tensors = checkpoints.load_weights(place / "checkpoints")
        elif (place / huggingface.CONFIG_FILE).exists():
            config, tensors, fields = huggingface.read(place)
            task = fields.get("finetuning_task")
        elif (place / checkpoint.CONFIG_FILE).exists():
            config, tensors = checkpoint.read(place)
            if (place / HEAD_FILE).exists():
                task = read_json(place / HEAD_FILE)["finetuning_task"]
        else:
            raise UserError(f"{flag} {source} holds no model; name an exported model, or the --output of a run")
    except UserError:
        raise
    except ValueError as error:
        raise UserError(f"{flag} {source}: {error}") from None
    except KeyError as error:
        raise UserError(f"{flag} {source} lacks {error} in its JSON; restore it, or name another model") from None
    vocabulary = Vocabulary.load(place / "spiece.model")
    if len(vocabulary) != config.vocab_size:
        raise UserError(
            f"{place / 'spiece.model'} has {len(vocabulary)} pieces and the model beside it a vocab_size of "
            f"{config.vocab_size}; put the vocabulary there that the model was trained with"
        )
    return Initial(config, tensors, place / "spiece.model", vocabulary, task)


def fill(model: nn.Module, initial: Initial, task: str) -> list[str]:
    """Copies the weights into `model`: the encoder's, and the head's if they are of the same task.

    Returns:
        The names of the tensors that keep their random values: a head's, or a pooler's where there was none.
    """
    kept = []
    state = model.state_dict()
    for name, tensor in state.items():
        given = initial.tensors.get(name)
        of_encoder = name.startswith(_ENCODER)
        if given is not None and given.shape == tensor.shape and (of_encoder or initial.task == task):
            tensor.copy_(given)
        elif of_encoder and (given is not None or not name.startswith(_POOLER)):
            how = "lacks" if given is None else f"has with other sizes, {tuple(given.shape)},"
            raise UserError(f"--init {how} the tensor {name}; it is another kind of model")
        else:
            kept.append(name)
    return kept
