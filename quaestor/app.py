"""Quaestor as an application uses it: one public object for its parts (`parts`) and its background services (`services`).

Embedded (no redis_url): event layer, store, index and sketch are in memory, with one matching node in this process. Several
processes need nothing more: each follows the database by itself. The answer to a request that wrote waits, for
`read_your_writes_ms` at most, until this process serves nothing older. Another process may serve the older answer for some
milliseconds.
With redis_url: everything shared lives in Redis. The processes elect one among them to run the matching node for all, while no
grid (`quaestor grid`, `quaestor cluster`) runs.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from quaestor.capture.now import read_by
from quaestor.clock import Clock, system_clock
from quaestor.errors import ConfigurationError
from quaestor.realtime.notices import DeliveryMode
from quaestor.runtime.declarations import Declaration
from quaestor.settings import Settings, settings_in, switched

if TYPE_CHECKING:
    from quaestor.model import Dependent, Query
    from quaestor.observability.hooks import FailureObserver, InvalidationObserver, ReadObserver
    from quaestor.ports import CdnAdapter, LifetimeEstimator
    from quaestor.realtime.live import LiveResult
    from quaestor.redis.clients import SharedClient
    from quaestor.runtime.supervision.service import ServiceReport

ContinuousFunction = TypeVar("ContinuousFunction", bound="Callable[[Any], Awaitable[object]]")


class Quaestor:
    """Cache of one application. Attach `capture` to the MongoDB clients, and give the object to QuaestorMiddleware.

    settings: see Settings. Overrides are its fields, e.g. Quaestor(redis_url="redis://...", client_ttl="estimated"). Making a
        Quaestor connects to nothing. Raises ConfigurationError for settings that contradict each other.
    clock: clock of wall-clock milliseconds.
    estimator: estimator of lifetimes; by default the one of `quaestor.ttl` with the bounds of the settings.
    parts: all parts of this object; a capability of your own is a function that takes them.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        clock: Clock = system_clock,
        estimator: LifetimeEstimator | None = None,
        **overrides: Any,
    ) -> None:
        if settings is not None and not isinstance(settings, Settings):
            raise ConfigurationError(
                f"Quaestor() takes a Settings object or settings by name, not a {type(settings).__name__}: "
                "write Quaestor(mongo_url=...), or leave it out: the clients that carry `capture` are watched"
            )
        if settings is not None and overrides:
            raise ConfigurationError("pass either a Settings object or its fields, not both")
        from quaestor.runtime.lifecycle import Lifecycle  # the parts are loaded when the first Quaestor is made
        from quaestor.runtime.parts import build_parts

        self.settings = switched(settings or Settings.from_env({}, **overrides), os.environ)
        self._ignored_variables = () if settings is not None else settings_in(os.environ, overrides)
        self.parts = parts = build_parts(self.settings, clock=clock, estimator=estimator)
        read_by(clock)
        self.telemetry = parts.process.telemetry
        self.capture = parts.capture
        self.registry = parts.registry
        self.read_path = parts.read_path
        self.sketch = parts.storage.sketch
        self.subscriptions = parts.subscriptions
        self._life = Lifecycle(parts)

    @classmethod
    def from_env(cls, **overrides: Any) -> Quaestor:
        """Quaestor with the settings from MONGO_URL, REDIS_URL and QUAESTOR_*; see Settings.from_env."""
        return cls(Settings.from_env(**overrides))

    @property
    def ignored_variables(self) -> tuple[str, ...]:
        """REDIS_URL and variables QUAESTOR_* that this Quaestor does not read, because `Quaestor()` made it."""
        return self._ignored_variables

    def _report_ignored_variables(self) -> None:
        if self._ignored_variables:
            names = ", ".join(self._ignored_variables)
            text = f"{names}: Quaestor() reads no environment variables; write Quaestor.from_env()"
            if "REDIS_URL" in self._ignored_variables:
                text += "; to stay without this Redis, pass redis_url=None"
            self.telemetry.failure("configuration", "quaestor.environment_ignored", text, lasting=True)

    @property
    def redis(self) -> SharedClient | None:
        """Connections to the shared Redis; None if everything is in this process. Closed by stop()."""
        return self.parts.storage.redis

    def add_cdn(self, adapter: CdnAdapter) -> None:
        """Purge this CDN as well, and tag responses for it."""
        self.parts.effects.cdn.append(adapter)

    def purge_again(self, dependent: Dependent) -> None:
        """Purge all CDNs again, of copies that were still on their way at the first purge."""
        self.parts.effects.purge_again(dependent)

    def on_read(self, observer: ReadObserver) -> None:
        """Call observer on the event loop with each request that the cache or its handler answers, not with requests that bypass
        the cache. The observer must be quick, because the answer waits for it. An observer that raises is counted and logged."""
        self.telemetry.hooks.reads.append(observer)

    def on_invalidated(self, observer: InvalidationObserver) -> None:
        """Call observer on the event loop after each invalidation whose effects are done: for dashboards and tests. An observer
        that raises is counted and logged."""
        self.telemetry.hooks.invalidations.append(observer)

    def on_failure(self, observer: FailureObserver) -> None:
        """Call observer with each failure of a part that Quaestor depends on. The observer must be thread-safe, because it runs
        in the thread that met the failure. An observer that raises is counted and logged."""
        self.telemetry.hooks.failures.append(observer)

    def continuous(
        self, text: str, *, every: str, name: str | None = None, at_most: str = ""
    ) -> Callable[[ContinuousFunction], ContinuousFunction]:
        """Declare a continuous query on an async function, before the start:

            @quaestor.continuous("SELECT id FROM reminders WHERE due_at = now()", every="1m")
            async def remind(batch): ...

        The function receives each batch of results (`rows`, `key`). A batch is repeated, with the same key, until the function
        returns. A query that is declared for the first time begins with its first start. Needs `continuous_folder`.

        every: `30s`, `10m`, `2h`, `1d`, `2w`, or `cron: 0 8 * * MON`.
        name: of the query; by default the function's.
        at_most: longest interval that is acceptable under load, like `1h`; empty: any.
        """

        def declare(function: ContinuousFunction) -> ContinuousFunction:
            self.parts.continuous.declared.append(
                Declaration(text=text, every=every, name=name or function.__name__, at_most=at_most, function=function)
            )
            return function

        return declare

    async def subscribe(
        self,
        query: Query,
        *,
        delivery: DeliveryMode | str = DeliveryMode.STATE,
        steps: bool = False,
        poll_interval_ms: int | None = None,
    ) -> LiveResult:
        """Follow the result of a query: an asynchronous iterator of the whole result, then of the events that change it.

            async with await quaestor.subscribe(query) as live:
                async for event in live: ...

        Returns when the result is known. Events come in order and none twice, even if processes die in between, and lead to
        the current result. The first event says whether each write that changes the result has an event of its own
        (`Whole.delivery`). A subscriber that is more than `subscription_queue` events behind receives the whole result instead.
        See LiveResult.

        delivery: the least delivery wanted; "exact" is refused if a collection of the query does not record post-images.
        steps: whether a `Step` follows the events of each change, and each full result.
        poll_interval_ms: read the result of this query again at most once in this time; None: the setting. The smallest interval
            of all subscribers counts.

        Raises QueryError if the query is malformed, or its result does not follow from writes. Raises SubscriptionError if the
        grid refuses the query, does not answer, or cannot deliver as wanted. Raises ConfigurationError without a grid, or for an
        unknown delivery.
        """
        if not self.settings.enabled:
            raise ConfigurationError(
                "nothing can be followed while Quaestor is turned off (`enabled`, QUAESTOR_ENABLED)"
            )
        if not self.settings.grid.enabled:
            raise ConfigurationError("nothing can be followed without a grid; leave `grid` on")
        if delivery not in set(DeliveryMode):
            raise ConfigurationError(f"delivery={delivery!r} is none of {', '.join(DeliveryMode)}")
        return await self.subscriptions.subscribe(
            query, delivery=DeliveryMode(delivery), steps=steps, poll_interval_ms=poll_interval_ms
        )

    async def invalidate(
        self, *, tags: Sequence[str] = (), urls: Sequence[str] = (), collections: Sequence[Any] = ()
    ) -> None:
        """Invalidate answers manually, in every process, in CDNs and in browsers. Takes effect as a write to the database does:
        within milliseconds, not necessarily before this returns. Calling it again does no harm.

        tags: tags of `@cached(tags=[...])`.
        urls: URLs with host ("https://shop.example/items?page=2"), or without for all hosts ("/items"). Routes with a
            declaration, a bare `@cached()` at least, lose the answers in all their variants, stored or on their way. Other
            routes lose the one answer that is stored under exactly this URL, with its host.
        collections: "database.collection" or pymongo collections; every answer that read from them.

        Raises ConfigurationError before the start, and for a value that is no tag, URL or collection. Raises DatabaseError if
        tags or URLs could not be written to `settings.store.control_namespace`, EventLayerError if the grid could not be
        notified.
        """
        if not self.settings.enabled:
            return
        manual = self._life.manual
        if manual is None:
            raise ConfigurationError("nothing can be invalidated before start(), or without a MongoDB that is watched")
        await manual.invalidate(tags=tags, urls=urls, collections=collections)

    async def settled(self, *, within_s: float = 10.0) -> None:
        """Wait until every write that MongoDB acknowledged before the call has taken effect in this process.

        Afterwards no answer from this process is older than those writes, and the process is ready to serve from cache. Returns
        at once before the start, after the stop, and while Quaestor is turned off, because nothing is cached then. Any event loop
        may call it.

        Raises DependencyError if the writes have not taken effect within so many seconds, DatabaseError if MongoDB does not
        answer. Raises ConfigurationError if the event loop of the start does not run any more.
        """
        await self._life.settling.settled(within_s=within_s)

    def settled_sync(self, *, within_s: float = 10.0) -> None:
        """Wait as `settled` does, in a thread without an event loop: in a test with `with TestClient(app) as client:`.

        Raises the errors of `settled`, and ConfigurationError if the event loop of the start runs in this thread.
        """
        self._life.settling.settled_sync(within_s=within_s)

    async def start(self) -> None:
        """Start the background work, also after a stop.

        Never fails because a part is down: requests bypass the cache until the part answers.

        Without `mongo_url` the database is watched as soon as a client carries the capture: now, or when the first one appears.
        """
        if not self.settings.enabled:
            self.telemetry.event("quaestor.turned_off")
            return
        if self._life.runs:  # the application has started it before the middleware does
            return
        # Tests set the variable after the application is imported.
        self.read_path.run_capture.seen_constants.searching = switched(self.settings, os.environ).lifetimes.clock_parts
        self._report_ignored_variables()
        await self._life.start()
        mode = "shared" if self.redis is not None else "embedded"
        self.telemetry.event("quaestor.started", mode=mode if self.settings.grid.enabled else "without a grid")

    async def stop(self) -> None:
        """Stop the background work and close what was opened. start() begins again, with nothing cached in this process.

        Everything is closed, even if a part raises, within 20 s. A part that does not end is counted, logged and left behind.
        CDN adapters and a dashboard are closed for good.
        """
        await self._life.stop()

    def services(self) -> list[ServiceReport]:
        """Reports on the background services of this process: their states, failures and last errors."""
        return self.parts.process.supervisor.reports()
