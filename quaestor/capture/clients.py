"""The client that watches MongoDB; without a URL in the settings, the cluster is that of the application's own client.

The application only writes `Quaestor()` and `AsyncMongoClient(url, event_listeners=[quaestor.capture])`, in this order and in any
place. Our own client is made with the same hosts, credentials and TLS as the application's first client
(`captured_clients`).
"""

from __future__ import annotations

import linecache
from collections.abc import Mapping
from typing import Any

from pymongo import MongoClient
from pymongo.errors import ConfigurationError as DriverConfigurationError
from pymongo.errors import InvalidURI

from quaestor.capture.listener import Capture
from quaestor.errors import ConfigurationError
from quaestor.settings import Settings

WatchClient = MongoClient[dict[str, Any]]

_REMEDY = (
    "pass mongo_url=..., or attach the capture to a client: AsyncMongoClient(url, event_listeners=[quaestor.capture])"
)

_OURS: dict[str, Any] = {
    "appname": "quaestor",
    "connect": False,
    # A date out of Python's range must not stop the ingest. Everything else is decoded by the defaults: to plain dicts, naive
    # UTC, and UUIDs as bytes.
    "datetime_conversion": "DATETIME_AUTO",
}

_DROPPED = frozenset(
    {
        "appname", "connect", "datetimeconversion", "documentclass", "eventlisteners", "tzaware", "tzinfo", "typeregistry",
        "unicodedecodeerrorhandler", "uuidrepresentation",
        # Images stay encrypted, like the queries.
        "autoencryptionopts",
        # Change streams and the catalog are read on the primary, and wait for as long as there is no write.
        "maxstalenessseconds", "readconcernlevel", "readpreference", "readpreferencetags", "serverselector", "timeoutms",
    }
)  # fmt: skip
"""Options of the application's client that ours must not have, as arguments or in the URL (lower case, no underscores)."""


def watch_client(capture: Capture, settings: Settings) -> WatchClient:
    """Make a client of our own for change streams and the catalog, not connected yet; close() it when done.

    Its cluster is settings.mongo_url's, or else that of the first client that carries `capture`. From its first heartbeat on,
    reads from any other cluster are not cached: writes there would go unnoticed.

    Raises ConfigurationError if there is no such client, or if the URL is bad.
    """
    if settings.mongo_url is not None:
        arguments: dict[str, Any] = {"host": settings.mongo_url}
    else:
        capture.clients.look()
        if capture.clients.first is None:
            raise ConfigurationError(f"no MongoDB to watch: {_REMEDY}")
        arguments = _arguments(capture.clients.first)
    arguments["host"] = _without_dropped(arguments["host"])
    sources = set(linecache.cache)
    try:
        return MongoClient(**arguments, **_OURS, event_listeners=[capture.watcher()])
    except (InvalidURI, DriverConfigurationError, ValueError, TypeError) as error:
        raise ConfigurationError(f"cannot make a client for {_shown(arguments)}: {error}") from error
    finally:
        # PyMongo prints the stack for each client. Python would keep the sources of the application's framework for it: 1.7 MB.
        for path in linecache.cache.keys() - sources:
            linecache.cache.pop(path, None)


def _arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in given.items()
        if not _dropped(name) and not name.startswith("_")  # hooks of wrappers such as Motor, bound to their event loop
    }


def _dropped(name: str) -> bool:
    return name.lower().replace("_", "") in _DROPPED


def _without_dropped(host: Any) -> Any:
    """Return the host argument, with the dropped options removed from its URLs."""
    if isinstance(host, str):
        base, _, options = host.partition("?")
        kept = [option for option in options.split("&") if option and not _dropped(option.partition("=")[0])]
        return base + ("?" + "&".join(kept) if kept else "")
    return host if host is None else [_without_dropped(entity) for entity in host]


def _shown(arguments: Mapping[str, Any]) -> str:
    """Return the host without its credentials."""
    return str(arguments.get("host")).rsplit("@", 1)[-1]
