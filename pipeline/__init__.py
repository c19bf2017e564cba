"""Training, evaluation and export of ALBERT with DeepSpeed: the only package that knows DeepSpeed."""
