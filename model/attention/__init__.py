"""Self-attention of padded and packed rows.

self_attention   the attention block, and which tokens attend to which (`AttentionLayout`)
kernels          chooses a kernel: by a rule on a CPU, by measurement on a GPU
per_sequence     a kernel for CPUs: one sequence at a time
variable_length  a kernel for GPUs: FlashAttention over sequences of different lengths
"""
