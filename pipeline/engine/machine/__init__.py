"""The machine that this rank runs on: its accelerator, its rank, and what DeepSpeed compiles for it.

hardware        precisions of this rank's accelerator, and data sheets of GPU kinds
gpu_check       refuses to train on the processor where a GPU is there that torch cannot use
determinism     deterministic algorithms
gpu_pages       what the pages of `make gpu` show about GPUs like this one
extensions      says when DeepSpeed compiles an extension, and removes locks of killed builds
shared_memory   checks that /dev/shm has room for DeepSpeed's buffers
rank_discovery  finds this process's rank and world size
"""
