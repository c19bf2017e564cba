"""The kinds of tasks: each is one object with its examples, features, predictions and metrics.

texts        classes and numbers of texts and pairs: GLUE
choices      questions with options: RACE
tags         a class for each token
spans        answers in a passage: SQuAD
logits       what the first three share: logits in .npz files, and their metrics
answers      questions, passages and answers of SQuAD, their JSON files and metrics
best_spans   the most probable answers of a window
row_packing  texts as tokens, and sequences packed into rows
"""
