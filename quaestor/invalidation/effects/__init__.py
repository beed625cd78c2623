"""Effects of an invalidation: sketch, stores, CDNs, estimator; and invalidations that were asked for manually."""
