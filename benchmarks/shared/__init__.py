"""What several measurements use.

measure      seconds, bytes, and the speed of a matrix product
report       the description of the machine, and results as JSON and Markdown
namespaces   hosts made of network namespaces
job          a pre-training run whose ranks are started again and again
outcome      what two runs that should be equal have in the end
examples     the same examples for both systems of train_step
systems      the two systems of train_step
trainer_reference  fine-tuning with transformers.Trainer, started by finetune
time_shares  time of a step by kind of work
span_rules   other rules that cut documents into spans
wikipedia_size  the serial parts of data preparation for millions of documents
"""
