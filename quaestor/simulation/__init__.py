"""Simulation: shows the effects of lifetimes on browsers, CDNs, the app and its database before a change. See docs/ttl_theory.md.

Needs numpy (`pip install 'quaestor[simulation]'`). If numba is installed too, the event loop is compiled.
"""
