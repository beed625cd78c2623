"""Officers on a map: a channel that alerts each officer of hateful tweets near the place where he is now."""
