"""Matching grid: cells, each a loop around one matching node, in this process, in local processes or on Spark."""
