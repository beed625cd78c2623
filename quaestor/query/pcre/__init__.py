"""PCRE's pattern syntax, as in mongod 6.0, translated for engines with bounded running time."""
