"""The read path: cache keys, look-ups, and entries made from answers."""
