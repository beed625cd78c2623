"""The interfaces of the middleware: ASGI (https://asgi.readthedocs.io/en/latest/specs/main.html), and its view of a Quaestor."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol

from quaestor.model import Dependent
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
    """The part of `quaestor.Quaestor` that the middleware needs."""

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

    def add_cdn(self, adapter: CdnAdapter) -> None:
        """Purge dead entries from this CDN from now on."""

    def purge_again(self, dependent: Dependent) -> None:
        """Purge all CDNs once more of an answer that was still on its way at the first purge."""

    async def start(self) -> None:
        """Start the background work."""

    async def stop(self) -> None:
        """Stop the background work; start() begins again."""


class MountedApp(Protocol):
    """An app below one path, which the middleware serves beside the cache."""

    def serves(self, path: str) -> bool:
        """Whether a path belongs to the app."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    def begin(self) -> None:
        """Begin the app's background work. Called on the event loop when the engine runs."""

    async def stop(self) -> None:
        """Stop the app for good."""


class Mountable(Protocol):
    """The declaration of a mounted app: `quaestor.Dashboard`."""

    def mounted(self, engine: Any) -> MountedApp:
        """Return the app for this engine."""
