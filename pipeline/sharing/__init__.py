"""Shares the models of finished and running runs: exported directories, model cards, the Hugging Face hub.

command       the work of `pipeline.export`: chooses checkpoints, exports and pushes them
export        writes checkpoints as directories
selection     chooses checkpoints: newest, best, of one step, all
card          the model card, README.md
records       recipe, data and cost of a run as tables of the card
figures       measured quality of a pre-training checkpoint as a table of the card
task_figures  measured quality of a fine-tuned model as a table of the card
usage         lines of Python in the card that use the model
markdown      Markdown and YAML from values that may hold any text
hub           pushes exports to the Hugging Face hub
"""
