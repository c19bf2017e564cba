"""What several measurements use.

measure      seconds, bytes, and the speed of a matrix product
report       the description of the machine, and results as JSON and Markdown
commands     runs commands that may take hours, several at a time; checks that packages are there
job          a pre-training run whose ranks are started again and again, also several ranks on one device
over_gloo    runs a module with collectives over gloo
texts        shards of made-up text, or of a file
examples     the same examples for this model and `transformers`
systems      this model and `transformers`, and the speed of their steps
"""
