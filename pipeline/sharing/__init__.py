"""Shares a trained model: exports and model cards.

write_export    checkpoints -> directories with model, vocabulary and model card
trained_run     the model of a run, and which of its checkpoints are exported
"""
