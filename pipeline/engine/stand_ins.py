"""Takes the place of two modules that DeepSpeed imports in every rank and that no setting of this project uses.

With them it imports MLflow where that is installed, and torch's compiler, which takes 2 seconds of a processor.
"""

import sys
import types
from typing import Any

UNUSED: dict[str, dict[str, Any]] = {
    "deepspeed.autotuning.autotuner": {"Autotuner": None},
    "deepspeed.runtime.zero.muon.original_muon": {
        "MuonWithAuxAdam": type("MuonWithAuxAdam", (), {}),
        "adam_update": None,
        "muon_update": None,
    },
}
"""The modules, each with what DeepSpeed imports from it."""


def install() -> None:
    """Puts the stand-ins where `import` looks first. Call it before anything imports DeepSpeed."""
    for name, contents in UNUSED.items():
        if name not in sys.modules:
            module = types.ModuleType(name)
            vars(module).update(contents)
            sys.modules[name] = module
