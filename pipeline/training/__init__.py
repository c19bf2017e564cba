"""Trains a model: the loop and all that pre-training and fine-tuning share.

trainer        the training loop: decides when to log, evaluate and save, and when to end
agreement      what all ranks agree on: before a step, and during an evaluation
deadline       how far a run is by its time limit
divergence     ends a run whose loss is no finite number
saves          carries out saves, in the background or the foreground
step_metrics   the metrics of a record: of the task, of the engine, speed and memory
callback       the moments of training at which other code may look on, and why training ends early
callbacks/     what looks on: the console, and the log of metrics
tracking/      the numbers of a run to TensorBoard, MLflow and Weights & Biases
schedule       the learning rate of every step
training_run   how far a run has come, its clock, and what the trainer and its callbacks share
training_task  the interface of what is trained: batches, loss, metrics, evaluation
meter          sums of metrics over batches and ranks
metrics_file   reads metrics.jsonl
run_settings   the settings that both kinds of run have
"""
