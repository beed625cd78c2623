"""Tests of `quaestor/tables`: the log, versioned tables, and collections of MongoDB as tables."""
