"""Plain text -> tokens.

languages                 codes of languages
sentences                 splits text into sentences
english                   where English sentences end
boundaries                where sentences of other languages end
normalize                 ALBERT's text normalisation
vocabulary                what a vocabulary is, and how its file is found and read
sentencepiece_vocabulary  ALBERT's kind: a SentencePiece model with special pieces, also from a tokenizer.json
wordpiece_vocabulary      BERT's kind: WordPiece, by the library `tokenizers`
text_encoder              encodes sentences fast, each different word once; tells which characters tokens come from
"""
