"""Explanations: the way in which a query is matched, before it runs."""
