"""Self-attention of padded and packed rows.

self_attention   the attention block, which tokens attend to which (`AttentionPattern`), and the kernels
kernels          which kernel "auto" is
"""
