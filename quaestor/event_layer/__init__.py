"""Event layer: pipelines between the apps and the matching grid, in memory, on Redis and on a Redis Cluster."""
