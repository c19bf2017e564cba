"""Pre-trains and fine-tunes ALBERT: the Python API (docs/python.md) and the console script.

commands   `prepare`, `pretrain`, `finetune`: the commands of the same names; `load`: a trained model
dataset    `Shards`: rows of shards as a dataset of torch, for other training loops
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from common import __version__
from common.errors import UserError

if TYPE_CHECKING:
    from albert_pretraining.commands import Corpus, Model, Run, finetune, load, prepare, pretrain
    from albert_pretraining.dataset import Shards

__all__ = ["Corpus", "Model", "Run", "Shards", "UserError", "__version__", "finetune", "load", "prepare", "pretrain"]


def __getattr__(name: str) -> Any:
    """Imports torch when it is needed, so that the console script answers --help without it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{'dataset' if name == 'Shards' else 'commands'}"), name)


def main() -> int:
    """The console script `albert` of an installation: `albert pretrain ...`, `albert data shards ...`."""
    from pipeline.__main__ import main as run

    return run()
