"""Pre-trains ALBERT and BERT on shards.

command             the work of `pipeline.pretrain`: checks the command, trains, exports
host_data           checks the shards on each host, or copies them to its local disk
checked_files       which shards this host has checked before
evaluation          loss and accuracy, from sums over batches and on held-out rows
resolve             the settings of a run, from flags, JSON, shards and earlier starts
architecture        the architecture: of a preset or a trained model, with the data's vocabulary and positions
earlier_start       what an earlier start left in the run's directory: length, initial model, data
task                pre-training as a `TrainingTask`
student             the student of a teacher: its architecture and its initial weights
distillation        distillation as a `TrainingTask`
"""
