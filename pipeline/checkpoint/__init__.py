"""A run's directory and its checkpoints, which load on any number of ranks, at any ZeRO stage and in any precision.

checkpoint_manifest  the form of a checkpoint on disk: names of files, record of files and tensors
files                writes, verifies and reads one rank's part of a checkpoint; needs no other rank
retention            publishes a checkpoint, finds the newest and the best, deletes old ones, cleans up
save_and_load        saves an engine on all ranks together, while training goes on, and loads it
run_directory        the other files of a run: its lock, its settings, its vocabulary; what results.json must hold
pooling              how a model makes embeddings, in the files of sentence-transformers
initial_weights      reads the model that a run starts from (--init); loads the model of a run
"""
