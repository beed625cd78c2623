"""Proxy: the same cache in front of any HTTP origin, whatever language it is written in."""
