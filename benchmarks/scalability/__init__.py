"""Parts of benchmarks/invalidb_scalability.py: workload, client processes, grids, bare Redis, search, plots."""
