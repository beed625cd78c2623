"""Explanations: the way in which a query is matched, told before it runs."""
