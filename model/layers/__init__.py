"""The layers that all models are made of.

embeddings       factorised embeddings
attention        self-attention of padded and packed rows
encoder          layers that share their parameters
heads            the pooler, the pre-training heads, and sums of losses
processor        what makes a CPU fast, and its gradients in 16 bits right
torch_operators  operators of torch without a public name
"""
