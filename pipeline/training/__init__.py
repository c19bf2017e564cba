"""Trains a model: the loop and all that pre-training and fine-tuning share.

agreement         what all ranks agree on before a step, started during the step before
deadline          progress of a run under --max-hours
flags             command-line flags of both commands, and the types of their values
evaluation_pace   shows the progress of an evaluation, and ends it early
launch            runs one command on all ranks: rendezvous, validate, monitor, exit
lifecycle         the life of a run: check, open, introduce, train, finish
recorded_command  the command line in settings.json, to repeat it
saves             carries out saves, in the background or the foreground, and measures what they cost
schedule          the learning rate of every step
settings          the settings that both kinds of run have
silent_errors     compares what the ranks hold by checksum, and names the one that is wrong
state             how far a run has come
trainer           the training loop: decides when to log, evaluate and save
attention/        the attention kernel of a run on a GPU
divergence/       losses that are not finite, spikes, and the way back
reporting/        metrics, speed and memory, on the console, in metrics.jsonl and in TensorBoard
training_task     the interface of what is trained: batches, loss, metrics, evaluation
"""
