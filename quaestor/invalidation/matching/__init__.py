"""One matching node: the registrations that a write concerns. Pure, without a clock."""
