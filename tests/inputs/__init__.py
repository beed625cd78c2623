"""Inputs of an answer: everything that decides it is captured, so that no answer is stale and none is somebody else's."""
