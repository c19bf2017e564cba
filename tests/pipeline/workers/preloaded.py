"""What the server imports that processes of the tests are forked from: what a rank needs from its start to its end."""

import gc
import os

os.environ.update(DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1")

from deepspeed.runtime.zero.muon import muon_optimizer  # noqa: F401

import pipeline.engine.hardware
import pipeline.finetuning.finetuning_recipe
import pipeline.pretraining.pretraining_recipe  # noqa: F401

gc.collect()
gc.freeze()  # or the collector of every process would look at all of this again
