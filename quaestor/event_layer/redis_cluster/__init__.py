"""Event layer on a Redis Cluster: pipelines on several servers, and their losses."""
