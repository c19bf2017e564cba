"""`python -m tests.pipeline.workers.with_fp16 MODULE ARGUMENTS`: a module on a processor that claims to have fp16."""

import runpy
import sys

from tests.pipeline.workers.training import claim_fp16

if __name__ == "__main__":
    claim_fp16()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
