"""Origin and Node.js program that the tests and benchmarks of clients share."""
