"""The event layer on a Redis Cluster: pipelines that lie on several servers, and their losses."""
