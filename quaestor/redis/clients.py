"""Clients made from a redis_url."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import redis
import redis.asyncio
import redis.asyncio.cluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisClusterException

from quaestor.errors import ConfigurationError
from quaestor.redis.address import ClusterAddress, cluster_address, is_cluster
from quaestor.redis.cluster_client import SharedCluster

CONNECTIONS: Final = 64
"""Connections of a shared client to each server."""
TIMEOUT_S: Final = 1.0
"""Time after which a silent store counts as gone: the handler's answer does not wait for it."""

SharedClient = redis.asyncio.Redis | redis.asyncio.cluster.RedisCluster
"""Client on which store, index and sketch are built."""


def connection_pool(url: str, **options: Any) -> redis.ConnectionPool:
    """Return a pool of connections to one server. Raises ConfigurationError if the URL is not that of one."""
    with _naming(url):
        return redis.ConnectionPool.from_url(url, **options)


def client(url: str, **options: Any) -> redis.Redis | redis.RedisCluster:
    """Return a synchronous client, for tools and checks; a client to a cluster connects at once.

    Raises ConfigurationError if the URL has neither form, or leads to the other kind; RedisError if a cluster does not answer.
    """
    if not is_cluster(url):
        return redis.Redis.from_pool(connection_pool(url, **options))
    return cluster_client(cluster_address(url), **options)


def cluster_client(address: ClusterAddress, **options: Any) -> redis.RedisCluster:
    """Return a synchronous client to a cluster; reads the map of slots at once.

    Raises RedisError if no server answers, ConfigurationError if the server belongs to no cluster.
    """
    nodes = [redis.cluster.ClusterNode(host, port) for host, port in address.hosts]  # type: ignore[no-untyped-call]
    try:
        return redis.RedisCluster(
            startup_nodes=nodes, require_full_coverage=False, ssl=address.tls, **address.options | options
        )
    except RedisClusterException as error:  # this error is no RedisError
        if "not enabled" in str(error):
            raise ConfigurationError(
                "this Redis is no node of a cluster; write redis:// (or rediss://) in redis_url"
            ) from error
        raise redis.ConnectionError(str(error)) from error


def spans_servers(client: SharedClient) -> bool:
    """Whether the client's keys lie on several servers, so that the keys of one command must have one slot."""
    return isinstance(client, redis.asyncio.cluster.RedisCluster)


def shared_client(url: str, *, timeout_s: float = TIMEOUT_S) -> SharedClient:
    """Return the client for all data that an app process shares with others.

    Connects on first use. Answers or fails within timeout_s (a cluster: twice that), without silent retries, because callers
    have a better fallback. While all CONNECTIONS are in use, callers wait.

    Raises ConfigurationError if the URL has neither form.
    """
    options: dict[str, Any] = {
        "max_connections": CONNECTIONS, "timeout": timeout_s, "socket_timeout": timeout_s, "socket_connect_timeout": timeout_s,
        "protocol": 2,
    }  # fmt: skip
    if is_cluster(url):
        return SharedCluster(cluster_address(url), options)
    with _naming(url):
        pool = redis.asyncio.BlockingConnectionPool.from_url(url, retry=Retry(NoBackoff(), 0), **options)
    return redis.asyncio.Redis.from_pool(pool)


@contextmanager
def _naming(url: str) -> Iterator[None]:
    """Refuse a URL that the driver cannot read, naming only its scheme: the rest may hold a password."""
    try:
        yield
    except ValueError as error:
        scheme = url.partition("://")[0]
        raise ConfigurationError(f"redis_url ({scheme}://...) is not a Redis URL: {error}") from error
