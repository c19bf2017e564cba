"""What the fork server of the tests imports: seconds, for each process that would do it itself."""

import os

os.environ["DS_ACCELERATOR"] = "cpu"  # before DeepSpeed looks for one

import deepspeed  # noqa: F401

import pipeline.launch
import pipeline.trainer  # noqa: F401
