"""Fine-tunes a pre-trained model on a task of the paper, or on own files.

command           the work of `pipeline.finetune`: checks the command, trains each seed, predicts, exports
earlier_start     what earlier starts recorded: the initial model, and whether a command has anything to do
heads             the model of each kind of task
prediction        predicts every example of a split exactly once, over all ranks
results           writes predictions, submissions and results.json
export            loads the model of the best step, and exports it with its head
own_flags         the flags of tasks on own files
settings          the settings of a run, from Table 14, command line and JSON
task              fine-tuning as a `TrainingTask`
"""
