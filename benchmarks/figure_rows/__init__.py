"""Rows of the table of figures, each with its baseline and its unfavourable twin, from the result files."""
