"""Inputs: whatever decides an answer besides its URL, and what a client may expect after it wrote."""
