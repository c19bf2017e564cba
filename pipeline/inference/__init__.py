"""Predicts with a finished run, in one process.

predict_command  the work of `pipeline.predict`: checks the command, predicts, and writes tables
pretrained       the words in the place of a [MASK] and embeddings, from a pre-trained model
"""
