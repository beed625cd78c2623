"""Everything that decides an answer: captured, keyed, or found out."""
