"""Connections to Redis: addresses, clients, scripts."""
