"""Pre-trains and fine-tunes ALBERT: the Python API (docs/python.md) and the console script.

api   models, and shards as a dataset
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from common import __version__
from common.errors import UserError

if TYPE_CHECKING:
    from albert_pretraining.api import Model, Shards, load

__all__ = ["Model", "Shards", "UserError", "__version__", "load"]


def __getattr__(name: str) -> Any:
    """Imports torch when it is needed, so that the console script answers --help without it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.api"), name)


def __dir__() -> list[str]:
    """The names of the API, for Tab and help()."""
    return sorted(__all__)


def main() -> int:
    """The console script `albert` of an installation: `albert pretrain ...`, `albert data shards ...`."""
    from pipeline.__main__ import main as run

    return run()
