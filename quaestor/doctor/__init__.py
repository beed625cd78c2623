"""Doctor: finds obstacles to caching here, and the command that removes each (`quaestor doctor`, docs/doctor.md)."""
