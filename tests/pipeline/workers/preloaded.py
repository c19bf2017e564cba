"""What the server imports that processes of the tests are forked from: what a rank needs from its start to its end."""

import gc
import importlib
import os

os.environ.update(DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1")
for name in (
    "deepspeed.runtime.zero.muon.muon_optimizer",
    "pipeline.engine.hardware",
    "pipeline.finetuning.finetune_settings",
    "pipeline.pretraining.pretrain_settings",
):
    importlib.import_module(name)

gc.collect()
gc.freeze()  # or the collector of every process would look at all of this again
