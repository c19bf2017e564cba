"""The tasks that a pre-trained model is fine-tuned on: what they are, their files, predictions and metrics.

task           a `Task`: labels, metrics, files, submission and hyperparameters; a `Kind`, what differs between kinds
kinds/         the kinds: examples, features, predictions and metrics of each
registry       all tasks by name: those of the paper are GLUE, SQuAD and RACE
own_tasks      tasks on the user's own files, made from the files or from a run's record
files/         official files, hub data sets and tables -> examples; submissions
metrics        the metrics of classes and numbers; an estimate
"""
