"""Shares a trained model: exports, model cards, and the Hugging Face hub.

export_command  the work of `pipeline.export`
export          checkpoints -> directories with model, vocabulary, model card and ONNX graph
selection       which checkpoints are exported
card            the model card
card_tables     the tables of the card, from the records of a run
hub_repository  pushes exports to a repository of the hub
"""
