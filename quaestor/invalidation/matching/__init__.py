"""Matching node: finds the registrations and subscribed queries that a write concerns. Pure, without a clock."""
