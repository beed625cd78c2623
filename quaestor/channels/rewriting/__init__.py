"""Rewriting of the queries of channels into plans over subscriptions and new records."""
