"""Answers guarded by one matching node. A real database judges each eviction. Oracle tests and benchmarks share them."""
