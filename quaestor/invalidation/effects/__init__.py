"""Effects of an invalidation on sketch, stores, CDNs and estimator; manual invalidations."""
