"""`quaestor doctor` on real servers that something is wrong with, and the commands that mend it."""
