"""What several measurements use.

measure      seconds, bytes, and the speed of a matrix product
report       the description of the machine, and results as JSON and Markdown
examples     the same examples for both systems of train_step
systems      the two systems of train_step
time_shares  time of a step by kind of work
span_rules   other rules that cut documents into spans
wikipedia_size  the serial parts of data preparation for millions of documents
"""
