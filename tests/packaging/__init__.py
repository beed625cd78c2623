"""The distribution: what is in it, and that it works where nothing else is."""
