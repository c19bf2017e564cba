"""The study: one small model from real text to fine-tuned tasks, and a page with what it learned (docs/study.md).

plan      settings: model, optimizer, learning rates and limits of fine-tuning
text      the corpora below --data-root, and the commands that make shards of them
tasks     the tasks below --data-root, and their sizes
finetune  the commands of fine-tuning
page      the page and its plots
"""
