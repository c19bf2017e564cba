"""Predicts with a finished run, in one process.

predict_command  the work of `pipeline.predict`: checks the command, predicts, and writes
tables           a file or standard input -> examples of the run's task; rows with predictions -> file or output
embedding        mean-pooled embeddings of texts
fill_mask        the most likely pieces in the place of [MASK], from a pre-training run
"""
