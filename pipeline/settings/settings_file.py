"""settings.json: writes the settings of a run, and reads those of this version and of earlier ones.

A field or a flag that an earlier version did not have gets its declared default. A flag that is gone is named in
`RunFlags.removed`. One that is renamed or has another meaning needs a new format: raise `FORMAT`, add the function that
makes its content from the format before to `_UPGRADES`, and add a run of the format before to tests/data.
"""

import dataclasses
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from common import __version__
from common.errors import UserError
from common.files import atomic
from common.files.json_files import check_as, read_object
from model.config import AlbertConfig
from pipeline.settings.run_flags import RunFlags
from pipeline.settings.run_settings import FinetuneSettings, PretrainSettings, RunSettings, as_json

SETTINGS = "settings.json"
FORMAT = 5
_REMEDY = "restore it, or leave that run out"


def write_settings(output: Path, settings: RunSettings) -> None:
    """Writes settings.json into a run's directory, with the version of this program."""
    content = as_json({"format": FORMAT, "version": __version__, **vars(settings)})
    atomic.write_text(output / SETTINGS, content + "\n")


def read_settings(run: Path) -> PretrainSettings | FinetuneSettings:
    """The settings of a run. Raises UserError: they are missing, damaged, or of a format that is not known."""
    path = run / SETTINGS
    if not os.path.lexists(path):
        raise UserError(f"{run} holds no run (no {SETTINGS}); name the --output of pretrain or finetune")
    return _settings_of(read_object(path, _REMEDY), path)


def _settings_of(content: dict[str, Any], path: Path) -> PretrainSettings | FinetuneSettings:
    form = content.pop("format", None)
    if form != FORMAT and form not in _UPGRADES:
        raise UserError(
            f"{path} has format {form!r:.20}, and this program reads {min(_UPGRADES)} to {FORMAT}; leave that run out, "
            "or use the version that wrote it"
        )
    try:
        while form != FORMAT:
            content, form = _UPGRADES[form](content, path.parent), form + 1
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{path} is no {SETTINGS} of format {form} ({error!r:.80}); {_REMEDY}") from None
    content.pop("version", None)
    for settings in (content, content.get("pretraining")):
        if isinstance(settings, dict) and isinstance(flags := settings.get("flags"), dict):
            settings["flags"] = {name: value for name, value in flags.items() if name not in RunFlags.removed}
    kind: type[PretrainSettings | FinetuneSettings] = PretrainSettings if "objective" in content else FinetuneSettings
    return check_as(content, kind, path, _REMEDY)


def _from_4(content: dict[str, Any], run: Path) -> dict[str, Any]:
    """Format 4 (before 0.9.0) was a flat record with the values of some flags and parts of the DeepSpeed JSON."""
    is_pretraining = "objective" in content
    json = content["deepspeed"]
    decisive = content if is_pretraining else content["hyperparameters"]
    optimizer, batch = decisive["optimizer"], decisive["train_batch_size"]
    kept = ("log_interval", "eval_interval", "save_interval", "init", "init_weights", "execution")
    found = {name: content[name] for name in kept} | {
        "flags": {"output": str(run), **{name: content[name] for name in ("seed", "deterministic", "max_hours")}},
        "model": _config(content["model"]),
        "init_model": content["init_model"] and _config(content["init_model"]),
        "steps": decisive["steps"],
        "warmup_steps": decisive["warmup_steps"],
        "engine": {
            # The decisive parts stand twice in this format.
            "json": json | {name: decisive.get(name) for name in ("optimizer", "scheduler", "gradient_clipping")},
            "train_batch_size": batch,
            "micro_batch_size": json.get("train_micro_batch_size_per_gpu", batch),
            "accumulation_steps": json.get("gradient_accumulation_steps", 1),
            **{name: content[name] for name in ("precision", "world_size", "device")},
            "optimizer": optimizer["type"],
            "learning_rate": float(optimizer["params"]["lr"]),
            "notes": [],
        },
    }
    upgrade = _pretraining_from_4 if is_pretraining else _finetuning_from_4
    return upgrade(content, found, run)


def _pretraining_from_4(content: Mapping[str, Any], found: dict[str, Any], run: Path) -> dict[str, Any]:
    data, masking = content["data"], content["masking"]
    weighted = [(data, 1)] if isinstance(data, str) else data
    found["flags"] |= {
        "shards": content["data_directories"],
        "eval_data": content["eval_data_directories"],
        "eval_batches": content["eval_batches"],
        "deepspeed_config": "",
    }
    found |= {name: content[name] for name in ("objective", "skipped_batches", "corpora", "distilled")}
    return found | {
        "masking": {name: value for name, value in masking.items() if name != "scheme"},
        "data": content["data_directories"],
        "data_digests": [digest for digest, _ in weighted],
        "corpus_weights": [round(weight) for _, weight in weighted],
        "kept_checkpoints": 5,
        "branch": content.get("branch"),
        "scored_on": content.get("scored_on", ""),
    }


def _finetuning_from_4(content: Mapping[str, Any], found: dict[str, Any], run: Path) -> dict[str, Any]:
    hyperparameters, pretraining = content["hyperparameters"], content["pretraining"]
    limits = ("doc_stride", "max_query_length", "max_answer_length", "nbest")
    place = {"data": content["data_directory"]}
    found["flags"] |= {"task_word": content["task"], "init": content["init"], **place}
    found["flags"] |= {"random_weights": content["random_weights"]}
    return found | {
        "task": content["task"],
        "own_task": content["own_task"],
        "data_digest": content["data"],
        "max_length": hyperparameters["max_length"],
        "limits": {name: hyperparameters[name] for name in limits} if "nbest" in hyperparameters else None,
        "pretraining": pretraining and _from_4(pretraining, run),
        "data_on_hub": content["data_on_hub"],
    }


def _config(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The architecture by the names of the fields, without the constant that `transformers` has as a field."""
    return dataclasses.asdict(AlbertConfig.from_dict(fields))


_UPGRADES: Mapping[int, Callable[[dict[str, Any], Path], dict[str, Any]]] = {4: _from_4}
"""Each makes the content of the next format from that of its own."""
