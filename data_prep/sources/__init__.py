"""Raw collections: one module for each kind, and the sample that needs no download by hand."""
