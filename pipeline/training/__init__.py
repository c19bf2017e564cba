"""Trains a model: the loop and all that pre-training and fine-tuning share.

trainer        the training loop: decides when to log, evaluate and save, and when to end
run_end        what ends a run early: a signal that all ranks agree on, the time limit, a wrong loss, wrong weights
step_metrics   the metrics of a record: of the task, summed over batches and ranks; of the engine; speed and memory
training_run   how far a run has come, its clock and speeds, what an evaluation gives, and when callbacks look on
training_task  what is trained: model, data, loss, evaluation; one class for pre-training, one for fine-tuning
schedule       the learning rate of every step
callbacks      the lines on the console; writes metrics.jsonl and the curves of TensorBoard
metrics_file   reads metrics.jsonl
"""
