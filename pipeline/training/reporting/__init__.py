"""What a run reports: metrics, speed and memory, on the console, in metrics.jsonl and in TensorBoard.

clock        wall-clock time of a run: training, waiting for data, the rest
metrics      sums over batches and ranks, the interval of a proportion
throughput   speed and memory
stragglers   finds the rank that arrives last at the collectives
metrics_log  metrics.jsonl, TensorBoard and trackers
console      the lines of a run on the console
"""
