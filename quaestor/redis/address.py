"""Address in a redis_url.

    redis://..., rediss://..., unix://...                      one server, or the primary behind one address
    redis+cluster://[user:password@]host:port[,host:port...]   a Redis Cluster or Valkey Cluster; rediss+cluster:// with TLS

The hosts of a cluster are the first contacts, which name the other servers; one that answers is enough. The options behind a
question mark belong to the driver (`ssl_ca_certs`, `client_name`, ...), in both forms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import redis

from quaestor.errors import ConfigurationError

_CLUSTER: Final = "+cluster"
_FIRST_PORT: Final = 6379


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAddress:
    """Address of a cluster.

    hosts: (host, port) of the first contacts.
    tls: over TLS.
    options: options of the driver, with the password; not for logs.
    """

    hosts: tuple[tuple[str, int], ...]
    tls: bool
    options: dict[str, Any]


def is_cluster(url: str) -> bool:
    """Whether the URL is that of a cluster."""
    return url.partition("://")[0].endswith(_CLUSTER)


def cluster_address(url: str) -> ClusterAddress:
    """Return the address of a cluster in its URL. Raises ConfigurationError for any other URL."""
    scheme, _, rest = url.partition("://")
    authority, slash, tail = rest.partition("/")
    if not slash:
        authority, question, tail = rest.partition("?")
        tail = question + tail
    user, at, hosts = authority.rpartition("@")
    try:
        if scheme not in ("redis+cluster", "rediss+cluster"):
            raise ValueError("the scheme of a cluster is redis+cluster or rediss+cluster")
        options: dict[str, Any] = {}
        nodes = []
        for host in hosts.split(","):
            single_url = f"{scheme.removesuffix(_CLUSTER)}://{user}{at}{host}/{tail}"
            options = redis.connection.parse_url(single_url)  # type: ignore[no-untyped-call]
            if "host" not in options:
                raise ValueError("a host is missing")
            nodes.append((str(options.pop("host")), int(options.pop("port", _FIRST_PORT))))
        if options.pop("db", 0):
            raise ValueError("a cluster has no other database than 0")
    except ValueError as error:  # the URL may hold a password
        raise ConfigurationError(
            f"redis_url ({scheme}://...) is not the URL of a Redis Cluster: {error}; "
            "write redis+cluster://host:port,host:port"
        ) from error
    options.pop("connection_class", None)
    return ClusterAddress(hosts=tuple(nodes), tls=scheme.startswith("rediss"), options=options)
