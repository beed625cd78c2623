"""Continuous queries: standing questions over versioned tables, answered for every instant, each result delivered once.

Nothing of it is imported by the core; `pip install 'quaestor[continuous]'` brings its libraries.
"""
