"""Simulation: what lifetimes do to browsers, CDNs, the app and its database, before anybody changes them. See docs/ttl_theory.md.

Needs numpy (`pip install 'quaestor[simulation]'`); where numba is there too, the event loop is compiled.
"""
