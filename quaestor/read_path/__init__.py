"""The read path: cache keys, look-ups, and the entries that are made of answers."""
