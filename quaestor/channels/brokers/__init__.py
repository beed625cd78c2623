"""Brokers: HTTP endpoints that receive the results of channels for their subscribers, and serve them."""
