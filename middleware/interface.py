"""The shapes that the middleware works with: ASGI (https://asgi.readthedocs.io/en/latest/specs/main.html), and what it needs of a
Quaestor."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol

from quaestor.observability.telemetry import Telemetry
from quaestor.ports import CacheSketch, CdnAdapter, QueryRegistry
from quaestor.read_path.service import ReadPath
from quaestor.settings import Settings

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
RawHeaders = list[tuple[bytes, bytes]]


class Engine(Protocol):
    """What the middleware needs of `quaestor.Quaestor`."""

    @property
    def settings(self) -> Settings: ...

    @property
    def telemetry(self) -> Telemetry: ...

    @property
    def read_path(self) -> ReadPath: ...

    @property
    def registry(self) -> QueryRegistry: ...

    @property
    def sketch(self) -> CacheSketch: ...

    def add_cdn(self, adapter: CdnAdapter) -> None: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...
