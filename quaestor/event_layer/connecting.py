"""The choice of an event layer by the redis_url."""

from __future__ import annotations

from collections.abc import Sequence

from quaestor.event_layer.redis import RedisEventLayer
from quaestor.event_layer.redis_cluster.layer import ClusterEventLayer
from quaestor.event_layer.redis_pipelines import RedisPipelines
from quaestor.redis.address import is_cluster


def event_layer(url: str, deployment: str, *, beside: Sequence[str] = ()) -> RedisPipelines:
    """The event layer on one server or on a cluster, as the URL says (quaestor/redis/address.py). Connects on first use.

    beside: keys of others whose loss is the event layer's loss. On one server it is anyway.

    Raises ConfigurationError if it is the URL of neither.
    """
    if is_cluster(url):
        return ClusterEventLayer(url, deployment, beside=beside)
    return RedisEventLayer(url, deployment)
