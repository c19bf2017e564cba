"""Turns examples into the inputs of a model, and the outputs of a model into predictions.

base          what all kinds of features have in common
text          texts and pairs of texts: GLUE
choice        questions with options about a passage: RACE
tags          texts with a tag for each token
span          questions about a passage, window by window: SQuAD
windows       the windows over a long passage
best_spans    the best answers of each window
row_packing   sequences packed into rows
"""
