"""Brokers: registered receivers of results, deliveries to them and their acknowledgements."""
