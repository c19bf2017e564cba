"""Sends the numbers of a run to TensorBoard, MLflow and Weights & Biases.

curves       which numbers of a record become curves, and which settings others see
tensorboard  event files with the settings
services     MLflow and Weights & Biases, which --track turns on, each in a thread
"""
