"""Fine-tunes a pre-trained model on a task of the paper, or on own files, and predicts with it.

finetuning_recipe  fine-tuning as a `Recipe`: what `pipeline.finetune` gives to `pipeline.run.start`, for each seed;
                   writes predictions, submissions and results.json
finetune_settings  the settings of a run, from Table 14, flags and JSON
fine_tuning        fine-tuning as a `TrainingTask`; predictions over all ranks
predictor          a trained model that predicts, fills masks and embeds texts
partial_answers    answers in chunks, which an interrupted command finds again
predict_command    the work of `pipeline.predict`: tables and pipes
"""
