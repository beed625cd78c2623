"""The matching grid: cells, each a loop around one matching node, in this process or on Spark."""
