"""Registered URLs, and the queries behind each: administrators register them for origins that do not declare their queries.

A registered URL stays until it is removed. Nothing is forgotten silently, because answers would then lose their guard.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from redis.exceptions import RedisError

from quaestor.errors import ConfigurationError, StoreError
from quaestor.read_path.key import resource, target
from quaestor.redis.clients import SharedClient

MAX_URLS = 10_000


class RegisteredUrls(Protocol):
    """Declarations (see `quaestor.capture.declared`) by the names of url_name(). Raises StoreError."""

    async def put(self, name: str, declaration: bytes) -> bool:
        """Keep a declaration; False, and nothing is kept, if there are MAX_URLS already."""

    async def remove(self, name: str) -> bool:
        """Remove a declaration, and return whether there was one."""

    async def find(self, names: Sequence[str]) -> list[bytes]:
        """Declarations under any of these names. One round trip at most."""

    async def count(self) -> int:
        """Number of registered URLs."""


def url_name(url: str) -> str:
    """Name under which a URL is registered. An absolute URL is registered for its scheme and host, a path for every host.

    All spellings of one URL have one name (see `quaestor.read_path.key`). Raises ConfigurationError.
    """
    if not url.isascii() or not url.isprintable() or " " in url:
        raise ConfigurationError(f"{url[:80]!r} is not a URL: percent-encode what is not ASCII")
    if url.startswith("/"):
        path, _, query = url.partition("#")[0].partition("?")
        return resource(path.encode(), query.encode())
    scheme, separator, rest = url.partition("#")[0].partition("://")
    if separator and scheme.lower() in ("http", "https"):
        cut = min((at for at in (rest.find("/"), rest.find("?")) if at >= 0), default=len(rest))
        path, _, query = rest[cut:].partition("?")
        named = target(scheme.lower(), rest[:cut].encode(), path.encode() or b"/", query.encode())
        if named is not None and rest[:cut]:
            return named.key
    raise ConfigurationError(f"{url[:80]!r} is neither a path like /flights?origin=JFK nor an http(s) URL")


class MemoryUrls:
    """Registered URLs of this process only."""

    def __init__(self, limit: int = MAX_URLS) -> None:
        self._limit = limit
        self._declarations: dict[str, bytes] = {}

    async def put(self, name: str, declaration: bytes) -> bool:
        """See RegisteredUrls."""
        if name not in self._declarations and len(self._declarations) >= self._limit:
            return False
        self._declarations[name] = declaration
        return True

    async def remove(self, name: str) -> bool:
        """See RegisteredUrls."""
        return self._declarations.pop(name, None) is not None

    async def find(self, names: Sequence[str]) -> list[bytes]:
        """See RegisteredUrls."""
        return [self._declarations[name] for name in names if name in self._declarations]

    async def count(self) -> int:
        """See RegisteredUrls."""
        return len(self._declarations)


class RedisUrls:
    """Registered URLs of all processes of a deployment, in one hash: `quaestor:{<d>}:urls`."""

    def __init__(self, client: SharedClient, *, deployment: str, limit: int = MAX_URLS) -> None:
        self._client = client
        self._hash = f"quaestor:{{{deployment}}}:urls"
        self._limit = limit

    async def put(self, name: str, declaration: bytes) -> bool:
        """See RegisteredUrls."""
        if await self.count() >= self._limit and not await self._call("HEXISTS", name):
            return False
        await self._call("HSET", name, declaration)
        return True

    async def remove(self, name: str) -> bool:
        """See RegisteredUrls."""
        return bool(await self._call("HDEL", name))

    async def find(self, names: Sequence[str]) -> list[bytes]:
        """See RegisteredUrls."""
        return [declaration for declaration in await self._call("HMGET", *names) if declaration is not None]

    async def count(self) -> int:
        """See RegisteredUrls."""
        return int(await self._call("HLEN"))

    async def _call(self, command: str, *arguments: str | bytes) -> Any:
        try:
            return await self._client.execute_command(command, self._hash, *arguments)
        except RedisError as error:
            raise StoreError(f"the registered URLs could not be asked for: {error}") from error
