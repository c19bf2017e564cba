"""Pre-trains ALBERT and BERT on shards.

command             the work of `pipeline.pretrain`: checks the command, trains, exports
data_checks         held-out documents are not trained on
host_data           checks the shards on each host, or copies them to its local disk
evaluation          loss and accuracy on held-out rows
metrics             metrics from sums over batches
sample_predictions  masked sentences with the model's predictions, to read
replay              the work of `pipeline.replay`: makes steps again, and compares them with the record
settings            the settings of a run, from command line, JSON and data
architecture        the architecture: of a preset or a trained model, with the data's vocabulary and positions
corpora             the corpora on the command line, and whether they fit together
earlier_start       what an earlier start left in the run's directory; the initial model
run_length          the length of a run, and how a later start may change it
masking_flags       the masking settings on the command line
task                pre-training as a `TrainingTask`
"""
