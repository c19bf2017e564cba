"""What the server imports that processes of the tests are forked from: what the start of a rank needs."""

import os

os.environ.update(DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1")

import torch._dynamo  # noqa: F401

import pipeline.finetuning.command
import pipeline.pretraining.command  # noqa: F401
