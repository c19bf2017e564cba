"""Fine-tunes a pre-trained model on a task of the paper, or on own files.

recipe       fine-tuning as a `Recipe`: what `pipeline.finetune` gives to `pipeline.run.start`, for each seed
settings     the settings of a run, from Table 14, flags and JSON
fine_tuning  fine-tuning as a `TrainingTask`; predictions over all ranks
results      writes predictions, submissions and results.json
"""
