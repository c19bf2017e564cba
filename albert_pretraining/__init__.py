"""Pre-trains and fine-tunes ALBERT: the Python API (docs/python.md) and the console script.

prepare, pretrain, finetune   run the commands of the same names, and return paths and metrics
load                          a trained model: `fill_mask`, `predict`, `embed`
Shards                        rows of shards as a dataset of torch, for other training loops

    training   the commands, as child processes
    models     trained models
    dataset    shards for torch
    cli        the script `albert`
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from common import __version__
from common.errors import UserError

if TYPE_CHECKING:
    from albert_pretraining.dataset import Shards
    from albert_pretraining.models import Model, load
    from albert_pretraining.training import Prepared, Run, finetune, prepare, pretrain

_MODULES = {
    "dataset": ("Shards",),
    "models": ("Model", "load"),
    "training": ("Prepared", "Run", "finetune", "prepare", "pretrain"),
}
__all__ = ["Model", "Prepared", "Run", "Shards", "UserError", "__version__", "finetune", "load", "prepare", "pretrain"]


def __getattr__(name: str) -> Any:
    """Imports torch when it is needed, so that the console script answers --help without it."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
