"""Plain text -> tokens.

languages         codes of languages
sentences         splits text into sentences
english           where English sentences end
normalization     ALBERT's text normalisation
vocabulary        the SentencePiece model with ALBERT's special pieces, also from a tokenizer.json
encoder           encodes sentences fast, each different word once
offsets           encodes texts, and tells which characters each token comes from
"""
