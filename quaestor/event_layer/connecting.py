"""Choice of an event layer by the redis_url."""

from __future__ import annotations

from collections.abc import Sequence

from quaestor.event_layer.redis import RedisEventLayer
from quaestor.event_layer.redis_cluster.layer import ClusterEventLayer
from quaestor.event_layer.redis_pipelines import RedisPipelines
from quaestor.redis.address import is_cluster


def event_layer(url: str, deployment: str, *, beside: Sequence[str] = ()) -> RedisPipelines:
    """Return the event layer on one server or on a cluster, by the URL (quaestor/redis/address.py). Connects on first use.

    beside: further keys whose loss is the event layer's loss. On one server that is always so.

    Raises ConfigurationError for any other URL.
    """
    if is_cluster(url):
        return ClusterEventLayer(url, deployment, beside=beside)
    return RedisEventLayer(url, deployment)
