"""Sends the scalars of a run to TensorBoard and to tracking services.

tracker      the interface of a tracker, and what a tracker knows of its run
curves       which numbers of a record become curves, and their tags
services     the trackers that --track and the DeepSpeed JSON turn on, each in a thread
tensorboard  event files with descriptions and settings, and the pages of Custom Scalars
csv_files    one CSV file for each curve
mlflow_runs  MLflow, also its file store
wandb_runs   Weights & Biases, also its offline mode
comet_runs   Comet
"""
