"""Runs of channels: one plan for all subscriptions, results and progress in one entry."""
