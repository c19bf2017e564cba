"""Fine-tunes a pre-trained model on a task of the paper, or on own files.

command      the work of `pipeline.finetune`: checks the command, trains each seed, predicts, exports
results      writes predictions, submissions and results.json
resolve      the initial model and the settings of a run, from Table 14, flags and JSON
fine_tuning  fine-tuning as a `TrainingTask`; predictions over all ranks
"""
