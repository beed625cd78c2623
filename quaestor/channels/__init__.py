"""Channels: parameterised queries, many subscribers, one plan for all of them."""
