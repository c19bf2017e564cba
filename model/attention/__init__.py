"""Self-attention of padded and packed rows.

self_attention   the attention block, and which tokens attend to which (`AttentionLayout`)
kernels          which kernel "auto" is, the candidates of a GPU, and the time of one
per_sequence     a kernel for CPUs: one sequence at a time
variable_length  a kernel for GPUs: FlashAttention over sequences of different lengths
"""
