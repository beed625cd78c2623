"""Doctor: what stands in the way of caching here, with the command that mends it (`quaestor doctor`, docs/doctor.md)."""
