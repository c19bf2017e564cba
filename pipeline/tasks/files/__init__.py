"""Reads the data of the tasks as examples.

reading   a task's data from --data: official files, or a data set of the library `datasets`
glue      the official TSV files of GLUE, their data set on the hub, and the submission
passages  the same of SQuAD and RACE
tables    CSV, TSV, JSON Lines, Parquet and CoNLL files as rows
rows      rows -> examples, by the columns that the user names
"""
