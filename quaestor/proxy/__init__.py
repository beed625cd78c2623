"""`quaestor proxy`: the same cache before any HTTP origin, whatever language it is written in."""
