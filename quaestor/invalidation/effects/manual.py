"""Manual invalidation: by tag, by URL, by collection.

Tags and URLs are written to the database as records, and removed in the same command. Registrations that depend on them (see
`quaestor.tags`) die as if any other record had changed: in the order of all writes, and in every process. The copies in CDNs and
browsers die too, and so does an answer under computation at the time of the call.

A collection is invalidated through the write pipelines, without a write to the database. All results that depend on it die at
once, and once more a little later, for answers that were on their way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import anyio.to_thread
import pymongo
from pymongo import DeleteMany, UpdateOne
from pymongo.errors import PyMongoError
from pymongo.write_concern import WriteConcern

from quaestor.errors import ConfigurationError, DatabaseError
from quaestor.model import CachedResponse
from quaestor.namespaces import namespace_of
from quaestor.policy import DEFAULT
from quaestor.read_path.key import MAX_TARGET_BYTES, resource, target
from quaestor.read_path.query import Tracking, kept
from quaestor.runtime.supervision.supervisor import KeptTask, Supervisor
from quaestor.settings import Settings
from quaestor.tags import tag_name, url_name, valid_tag

MAX_NAMES = 1_000
"""Tags and URLs in one call."""
AGAIN_AFTER_S = 2.0
_TIMEOUT_S = 5.0
_TRACKING = Tracking()


class ManualInvalidation:
    """Invalidation on request of the application or its operator. Use from one event loop.

    client: client of the watched MongoDB.
    collection_changed: tells the grid that everything in these namespaces may have changed. Blocks; raises EventLayerError.
    stored: returns the entry under a primary key.
    announce: tells every process that registrations are dead. `stored` and `announce` serve routes without a declaration, whose
    answers are not registered under their URL.
    """

    def __init__(
        self,
        client: pymongo.MongoClient[Any],
        settings: Settings,
        *,
        collection_changed: Callable[[frozenset[str]], None],
        stored: Callable[[str], Awaitable[CachedResponse | None]] | None = None,
        announce: Callable[[Sequence[str]], Awaitable[None]] | None = None,
        supervisor: Supervisor,
    ) -> None:
        self._supervisor = supervisor
        self._client = client
        self._settings = settings
        self._collection_changed = collection_changed
        self._stored = stored
        self._announce = announce
        self._again: set[KeptTask] = set()

    async def invalidate(
        self, *, tags: Sequence[str] = (), urls: Sequence[str] = (), collections: Sequence[Any] = ()
    ) -> None:
        """See `Quaestor.invalidate`."""
        names = control_names(self._settings.scope, tags=tags, urls=urls)
        namespaces = frozenset(namespace_of(name, "collections") for name in _several("collections", collections))
        if names:
            await anyio.to_thread.run_sync(self._write, names)
            await self._invalidate_stored(urls)
        if namespaces:
            await anyio.to_thread.run_sync(self._collection_changed, namespaces)
            self._again = {again for again in self._again if not again.done}
            self._again.add(self._supervisor.keep("manual-invalidation", partial(self._once_more, namespaces)))

    async def _invalidate_stored(self, urls: Sequence[str]) -> None:
        if self._stored is None or self._announce is None:
            return
        dead: list[str] = []
        for key in (known for url in urls for known in url_names(url) if not known.startswith("/")):
            response = await self._stored(key)
            if response is not None:
                dead += response.registrations[:1]  # its own registration: the others may guard entries elsewhere
        if dead:
            await self._announce(dead)

    async def _once_more(self, namespaces: frozenset[str]) -> None:
        await asyncio.sleep(AGAIN_AFTER_S)
        await anyio.to_thread.run_sync(self._collection_changed, namespaces)

    async def aclose(self) -> None:
        """Cancel the repetitions that are still to come."""
        for again in list(self._again):
            await again.aclose()

    def _write(self, names: Sequence[str]) -> None:
        database, _, collection = self._settings.store.control_namespace.partition(".")
        control = self._client.get_database(database).get_collection(collection, write_concern=WriteConcern("majority"))
        change = {"$set": {"at": datetime.now(UTC)}, "$inc": {"n": 1}}
        try:
            with pymongo.timeout(_TIMEOUT_S):
                control.bulk_write(
                    [
                        *(UpdateOne({"_id": name}, change, upsert=True) for name in names),
                        DeleteMany({"_id": {"$in": list(names)}}),
                    ]
                )
        except PyMongoError as error:
            raise DatabaseError(
                f"cannot write to {self._settings.store.control_namespace}, so perhaps nothing was invalidated: {error}; call it "
                "again; the user needs readWrite there (another place: control_namespace)"
            ) from error


def control_names(deployment: str, *, tags: Sequence[str] = (), urls: Sequence[str] = ()) -> list[str]:
    """Return the names of the records to write. Raises ConfigurationError for an invalid tag or URL, and for too many names."""
    names: list[str] = []
    for tag in _several("tags", tags):
        reason = valid_tag(tag) if isinstance(tag, str) else "a tag is a text"
        if reason:
            raise ConfigurationError(f"{tag!r} is no tag: {reason}")
        names.append(tag_name(deployment, tag))
    for url in _several("urls", urls):
        names += [url_name(deployment, known) for known in url_names(url)]
    if len(names) > MAX_NAMES:
        raise ConfigurationError(f"{len(names)} tags and URLs in one call: at most {MAX_NAMES}; call it several times")
    return list(dict.fromkeys(names))


def url_names(url: str) -> list[str]:
    """Return the names under which answers of a URL are registered: with all parameters, and without the tracking ones.

    A URL with a host means that host. A URL that begins with `/` means that path on every host.
    """
    scheme, has_scheme, rest = url.partition("://")
    host, slash, path = rest.partition("/") if has_scheme else ("", "/", url.removeprefix("/"))
    if len(url) > MAX_TARGET_BYTES or (not has_scheme and not url.startswith("/")):
        raise ConfigurationError(f"{url[:200]!r} is no URL: begin with '/', 'http://' or 'https://'")
    if has_scheme and "?" in host:
        host, _, rest = host.partition("?")
        slash, path = "/", "?" + rest
    raw_path, _, raw_query = (slash + path).partition("#")[0].encode().partition(b"?")
    names: list[str] = []
    for query in (raw_query, kept(raw_query, DEFAULT, _TRACKING)):
        if not has_scheme:
            names.append(resource(raw_path, query))
        elif (named := target(scheme.lower(), host.encode(), raw_path, query)) is not None:
            names.append(named.key)
        else:
            raise ConfigurationError(f"{url[:200]!r} is no URL: {host!r} is no host")
    return list(dict.fromkeys(names))


def _several(name: str, values: Iterable[Any]) -> Iterable[Any]:
    if isinstance(values, str | bytes):
        raise ConfigurationError(f"{name}={values!r} is one text: write a list, [{values!r}]")
    return values
