"""`pipeline.pretrain` in which the gradients of rank 1 are infinite once, those of the other ranks never.

python -m tests.gpu.one_rank_overflows BACKWARD-PASS ARGUMENTS-OF-PRETRAIN
"""

import os
import sys
from typing import Any

from torch import Tensor, nn

from pipeline import pretrain
from pipeline.distributed.exits import run_and_exit
from pipeline.run import start


def overflow_at(which: int) -> None:
    """Makes the gradient of one parameter infinite in backward pass number `which`, from 0, of this process."""
    initialise, passes = start.initialise, iter(range(1 << 30))

    def change(gradient: Tensor) -> Tensor:
        return gradient * float("inf") if next(passes) == which else gradient

    def initialise_and_hook(model: nn.Module, *arguments: Any) -> Any:
        next(iter(model.parameters())).register_hook(change)
        return initialise(model, *arguments)

    start.initialise = initialise_and_hook


if __name__ == "__main__":
    which, *words = sys.argv[1:]
    if os.environ["RANK"] == "1":
        overflow_at(int(which))
    run_and_exit(lambda: pretrain.main(words))
