"""Reads the data of the tasks as examples.

reading   a task's data from --data: official files, or a data set of the library `datasets`
official  the official files of GLUE, SQuAD and RACE, their data sets on the hub, and submissions
tables    CSV, TSV, JSON Lines, Parquet and CoNLL files as rows
rows      rows -> examples, by the columns that the user names
"""
