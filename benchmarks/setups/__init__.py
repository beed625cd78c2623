"""Set-ups that benchmarks and tests share: deployments under faults, browsers, caches before an origin, providers, clients."""

PATIENCE_S = 20.0
"""Time limit of the product where it is not the subject: long enough for a machine that stands still meanwhile."""
