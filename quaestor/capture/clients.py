"""The client that watches MongoDB; when nobody named one, of the cluster that the application's own client is connected to.

`Quaestor()` and `AsyncMongoClient(url, event_listeners=[quaestor.capture])` are all that the application writes. The
client does not tell a listener who it is, so it is looked for among the objects of this process, once, at the start;
our own client is then made with the same hosts, credentials and TLS.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from typing import Any

import pymongo
from pymongo import AsyncMongoClient, MongoClient
from pymongo.errors import ConfigurationError as DriverConfigurationError
from pymongo.errors import InvalidURI

from quaestor.capture.listener import Capture
from quaestor.errors import ConfigurationError
from quaestor.settings import Settings

WatchClient = MongoClient[dict[str, Any]]
_AnyClient = MongoClient[Any] | AsyncMongoClient[Any]
_CLIENT_TYPES = (MongoClient, AsyncMongoClient)

_REMEDY = (
    "pass mongo_url=..., or attach the capture to a client: AsyncMongoClient(url, event_listeners=[quaestor.capture])"
)

_OURS: dict[str, Any] = {
    "appname": "quaestor",
    "connect": False,
    # A date out of Python's range must not stop the ingest. Everything else is decoded to plain dicts, naive UTC and
    # UUIDs as the bytes they are: the defaults.
    "datetime_conversion": "DATETIME_AUTO",
}

_DROPPED = frozenset(
    {
        "appname", "connect", "datetimeconversion", "documentclass", "eventlisteners", "tzaware", "tzinfo", "typeregistry",
        "unicodedecodeerrorhandler", "uuidrepresentation",
        # Images stay as encrypted as the queries are.
        "autoencryptionopts",
        # Change streams and the catalog are read on the primary, and wait for as long as nobody writes.
        "maxstalenessseconds", "readconcernlevel", "readpreference", "readpreferencetags", "serverselector", "timeoutms",
    }
)  # fmt: skip
"""Options of the application's client that ours must not have, as arguments or in the URL (lower case, no underscores)."""


def watch_client(capture: Capture, settings: Settings) -> WatchClient:
    """A client of our own for change streams and the catalog, not connected yet; close() it when done.

    Its cluster is settings.mongo_url's, or else that of the clients that carry `capture`. From its first heartbeat on, reads
    from any other cluster are not cached: nobody would tell of the writes there.

    Raises ConfigurationError if there is no such client, if there are several of different clusters, or if the URL is bad.
    """
    if settings.mongo_url is not None:
        arguments: dict[str, Any] = {"host": settings.mongo_url}
    else:
        arguments = _arguments(_one_cluster(attached_clients(capture)))
    arguments["host"] = _without_dropped(arguments["host"])
    try:
        return MongoClient(**arguments, **_OURS, event_listeners=[capture.watcher()])
    except (InvalidURI, DriverConfigurationError, ValueError, TypeError) as error:
        raise ConfigurationError(f"cannot make a client for {_shown(arguments)}: {error}") from error


def attached_clients(capture: Capture) -> list[_AnyClient]:
    """The open pymongo clients of this process, synchronous or not, that were given this capture.

    Walks every object the garbage collector knows, four times: some 40 ms for 300,000 objects. A wrapper's inner client is
    found too.
    """
    # The chain that pymongo keeps to duplicate a client: capture < event_listeners=[...] < _init_kwargs < client, or its
    # __dict__. Not gc.get_objects(): whoever refers to everything, if only for a moment, breaks what other threads are just
    # making (seen in CPython 3.11: tuple(generator) raises SystemError there).
    given = [one for one in gc.get_referrers(capture) if issubclass(type(one), Sequence)]
    arguments = [one for one in gc.get_referrers(*given) if type(one) is dict]
    owners = gc.get_referrers(*arguments)
    owners += gc.get_referrers(*[one for one in owners if type(one) is dict])
    # type() and not isinstance(): proxies answer isinstance by importing or connecting what they stand for.
    clients = {id(one): one for one in owners if issubclass(type(one), _CLIENT_TYPES)}
    return [client for client in clients.values() if _carries(client, capture)]


def _carries(client: _AnyClient, capture: Capture) -> bool:
    try:
        listeners: Sequence[object] = client.options.event_listeners
    except Exception:  # a client whose construction failed half-way
        return False
    return any(listener is capture for listener in listeners)


def _one_cluster(clients: Sequence[_AnyClient]) -> _AnyClient:
    if not clients:
        raise ConfigurationError(f"no MongoDB to watch: {_REMEDY}")
    first = clients[0]
    for other in clients[1:]:
        if not _same_cluster(first, other):
            raise ConfigurationError(
                f"the capture is attached to clients of different clusters, {_hosts(first)} and {_hosts(other)}: "
                "use one Quaestor for each cluster, or pass mongo_url=... to say which one to watch"
            )
    return first


def _same_cluster(one: _AnyClient, other: _AnyClient) -> bool:
    """By seeds, before anything is connected: a common host, or the same SRV name. Aliases of one host are not seen through."""
    return bool(_seeds(one) & _seeds(other))


def _seeds(client: _AnyClient) -> frozenset[str]:
    host = _init_arguments(client).get("host")
    entities = [host] if isinstance(host, str) or host is None else list(host)
    port = _init_arguments(client).get("port") or MongoClient.PORT
    seeds: set[str] = set()
    for entity in entities:
        text = entity or MongoClient.HOST
        if text.startswith("mongodb+srv://"):
            seeds.add(text.split("://", 1)[1].rsplit("@", 1)[-1].split("/", 1)[0].split("?", 1)[0].lower())
        elif "://" in text:
            parsed = pymongo.uri_parser.parse_uri(text, default_port=port, validate=False, warn=False)
            seeds.update(f"{name}:{number}" for name, number in parsed["nodelist"])
        else:
            seeds.update(f"{name}:{number}" for name, number in pymongo.uri_parser.split_hosts(text, port))
    return frozenset(seeds)


def _hosts(client: _AnyClient) -> str:
    return ",".join(sorted(_seeds(client)))


def _init_arguments(client: _AnyClient) -> Mapping[str, Any]:
    """The arguments that the client was made with. pymongo keeps them to duplicate itself; there is no public way."""
    try:
        arguments: Mapping[str, Any] = client._init_kwargs
    except AttributeError as error:
        raise ConfigurationError(
            f"pymongo {pymongo.version} does not say how its client was configured: pass mongo_url=..."
        ) from error
    return arguments


def _arguments(client: _AnyClient) -> dict[str, Any]:
    return {
        name: value
        for name, value in _init_arguments(client).items()
        if not _dropped(name) and not name.startswith("_")  # hooks of wrappers such as Motor, bound to their event loop
    }


def _dropped(name: str) -> bool:
    return name.lower().replace("_", "") in _DROPPED


def _without_dropped(host: Any) -> Any:
    """The host argument, with the options that ours must not have taken out of its URLs."""
    if isinstance(host, str):
        base, _, options = host.partition("?")
        kept = [option for option in options.split("&") if option and not _dropped(option.partition("=")[0])]
        return base + ("?" + "&".join(kept) if kept else "")
    return host if host is None else [_without_dropped(entity) for entity in host]


def _shown(arguments: Mapping[str, Any]) -> str:
    """The host without its credentials."""
    return str(arguments.get("host")).rsplit("@", 1)[-1]
