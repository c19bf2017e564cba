"""Sends the scalars of a run to TensorBoard and to tracking services.

tracker      the interface of a tracker, what it knows of its run, and which numbers of a record become curves
services     MLflow and Weights & Biases, which --track turns on, each in a thread
tensorboard  event files with the settings
"""
