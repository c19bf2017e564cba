"""Runs a module as `python -m` does, with collectives over gloo also on a GPU: `python -m ... MODULE WORDS`."""

import runpy
import sys

from deepspeed.accelerator import get_accelerator

if __name__ == "__main__":
    get_accelerator()._communication_backend_name = "gloo"
    module, *sys.argv[1:] = sys.argv[1:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
