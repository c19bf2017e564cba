"""Pre-trains ALBERT and BERT on shards.

pretrain_settings   the settings, the architecture and the task of a run, from flags, JSON, shards and earlier starts
corpora             the training shards: one set, or several with weights; checks all shards on each host
lengths             the length in steps and the batches left out, and how later starts change them
pretraining_task    pre-training as a `TrainingTask`, and its evaluation
distillation        distillation as a `TrainingTask`; the teacher, and the student's architecture and initial weights
"""
