"""Training, evaluation and export of ALBERT with DeepSpeed: the only package that knows DeepSpeed.

The modules of this directory are the commands, which `python -m pipeline` lists and starts:

    pretrain, finetune             train; started by `deepspeed --module`
    evaluate, export               use finished runs
    predict                        predicts with a finished run
    plan, preflight                before runs
    show                           prints rows as training reads them

All other code is in the packages. Imports point downwards only (ARCHITECTURE.md):

    pretraining/  pre-trains on shards
    finetuning/   fine-tunes on a task of the paper, or on own files; predicts
    sharing/      exports and model cards
    analysis/     compares finished runs; scores minimal pairs
    run/          the life of a run: launch, start, resume, finish
    training/     the training loop and its callbacks; shared by pretraining/ and finetuning/
    checkpoint/   checkpoints and the directory of a run: writes, loads, deletes
    settings/     the flags of both training commands, declared once; settings.json
    tasks/        the tasks of the paper and own ones: labels, hyperparameters, files, metrics
    engine/       DeepSpeed: its configuration, its engine, and LAMB
    distributed/  ranks and hosts: rendezvous, and how a lost one is noticed
    data/         rows of shards -> batches: the order of rows, sentence order, masks
"""

from common import environment

environment.begin_command()
