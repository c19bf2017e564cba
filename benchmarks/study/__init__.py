"""The study: one model from real text to fine-tuned tasks, and a page with what it learned (docs/experiments.md).

plan      settings by the hardware: model, optimizer, what the probe chooses from, limits of fine-tuning
text      the corpora below --data-root, and the commands that make shards of them
training  the probe, pre-training and the scores of its milestones
finetune  the tasks below --data-root, and the commands of fine-tuning
page      the page and its plots
"""
