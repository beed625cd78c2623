"""Schedule of continuous queries: when each one runs next. Pure, and without a clock of its own."""
