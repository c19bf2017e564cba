"""Fine-tunes a pre-trained model on a task of the paper, or on own files, and predicts with it.

finetune_settings   the settings and the task of each seed, from Table 14, flags and JSON
fine_tuning         fine-tuning as a `TrainingTask`; predictions, submissions and results.json
predictor           a trained model that predicts, fills masks and embeds texts; predictions over all ranks
"""
