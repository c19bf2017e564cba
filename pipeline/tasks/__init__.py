"""The tasks that a pre-trained model is fine-tuned on: what they are, their files, predictions and metrics.

task             a `Task`: one object that owns labels, metrics, files, submission and hyperparameters
registry         all tasks by name: those of the paper, which are GLUE, SQuAD and RACE
own              tasks on the user's own files, made from the files or from a run's record
examples         the examples of all tasks as text
files/           official files, hub data sets and tables -> examples
features/        examples -> the model's inputs; the model's outputs -> predictions
predictions      the predictions of one split, and their files
readable         predictions as plain values with the names of labels
metrics          the metrics of classes and numbers
tagging_metrics  the metrics of tags
squad_metrics    the metrics of SQuAD
scoring          a task's predictions -> its metrics
submissions      predictions in the formats of the leaderboards, and as JSON Lines
"""
