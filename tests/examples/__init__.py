"""The applications of `examples/`, started as their README says, on real servers."""
