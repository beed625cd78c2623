"""Inputs of an answer: everything that decides it is captured, so no answer is stale or another client's."""
