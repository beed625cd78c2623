"""Faults and their judge: links that fail, processes that die, and a checker of served responses."""
