"""The layers that all models are made of, but for attention.

embeddings  factorised embeddings
encoder     layers that share their parameters
heads       the pooler, the pre-training heads, and sums of losses
linear      matrix products, by oneDNN on a CPU
"""
