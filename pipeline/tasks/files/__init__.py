"""Reads the data of the tasks as examples.

reading   a task's data from --data: official files, or a data set
glue      the official TSV files of GLUE
squad     the official JSON files of SQuAD
race      the official files of RACE
tables    CSV, TSV, JSON Lines, Parquet and CoNLL files as rows
own       rows -> examples, by the columns that the user names
hub       data sets for the library `datasets`: a name on the hub, or a directory
"""
