"""What a model costs and what its layers do.

parameter_counts  parameters of each part, beside those in the paper; `python -m model` prints them
flops             floating-point operations of a training step
similarity        how far each layer moves its input (Figure 1)
"""
