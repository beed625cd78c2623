"""Parts of `benchmarks/quaestor_fig58.py`: query caching on real parts over simulated distance."""
