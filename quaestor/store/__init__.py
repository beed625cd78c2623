"""Stores of entries and their dependency index, in memory and in Redis."""
