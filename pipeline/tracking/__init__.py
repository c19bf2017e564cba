"""Sends the scalars of a run to TensorBoard and to tracking services.

tracker      the interface of a tracker, and what a tracker knows of its run
curves       which numbers of a record become curves, and their tags
services     MLflow and Weights & Biases, which --track turns on, each in a thread
tensorboard  event files with descriptions and settings
"""
