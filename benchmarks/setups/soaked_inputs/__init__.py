"""A soak of the inputs of an answer: pages that depend on what else decides besides the database, and a check of every answer."""
