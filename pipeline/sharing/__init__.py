"""Shares a trained model: exports and model cards.

write_export    checkpoints -> directories with model, vocabulary and model card
"""
