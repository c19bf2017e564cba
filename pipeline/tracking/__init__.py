"""Sends the figures of a run to TensorBoard and to tracking services.

tracker      the interface of a tracker, and what a tracker knows of its run
figures      which numbers of a record become curves, and their tags
background   calls a tracker in a thread, so that training never waits for a network
choice       the trackers that --track and the DeepSpeed JSON turn on
tensorboard  event files with descriptions, settings, hparams and layout
layout       the pages of TensorBoard's Custom Scalars
csv_files    one CSV file for each figure
mlflow_runs  MLflow, also its file store
wandb_runs   Weights & Biases, also its offline mode
comet_runs   Comet
"""
