"""SQL of continuous queries: parsing, standard form and refusals. Pure functions without I/O."""
