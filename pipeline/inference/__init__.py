"""Predicts with a trained model, in one process.

predict_command  the work of `pipeline.predict`: checks the command, predicts, and writes tables
predictor        opens a run, an export or a published model, and answers with it
pretrained       the words in the place of a [MASK] and embeddings, from a pre-trained model
"""
