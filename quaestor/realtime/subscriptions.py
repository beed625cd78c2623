"""Subscriptions of one app process: results of queries, kept by the messages of their stages.

Subscribers of the same query share one result here and one lease in the grid (local_subscriptions.py). One thread reads the
results pipelines and keeps the leases (results_loop.py). The thread starts with the first subscription, which also loads the
modules: few applications subscribe to queries (docs/adr/0023).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from quaestor.errors import SubscriptionError
from quaestor.first_use import FirstUse
from quaestor.model import GridShape, Query
from quaestor.planning.plan_cache import plan_of
from quaestor.ports import EventLayer
from quaestor.realtime.notices import DeliveryMode, remedy
from quaestor.runtime.supervision.process_context import ProcessContext
from quaestor.runtime.supervision.supervisor import KeptThread

if TYPE_CHECKING:
    from quaestor.realtime import followed_views, local_subscriptions, query_resolution, results_loop
    from quaestor.realtime import live as subscribers
    from quaestor.realtime.live import LiveResult
    from quaestor.realtime.local_subscriptions import LocalSubscriptions
    from quaestor.realtime.query_resolution import Resolver
    from quaestor.realtime.results_loop import ResultsLoop
else:
    followed_views = FirstUse("quaestor.realtime.followed_views")
    subscribers = FirstUse("quaestor.realtime.live")
    local_subscriptions = FirstUse("quaestor.realtime.local_subscriptions")
    query_resolution = FirstUse("quaestor.realtime.query_resolution")
    results_loop = FirstUse("quaestor.realtime.results_loop")

_LOOK_AGAIN_S: Final = 0.01


class Subscriptions:
    """Subscriptions of one app process. stop() ends the thread; the results then stand still.

    shape: of the grid, None while it is not known.
    resolver: fills in what a query does not say of its collection (text index, default collation); None: nobody does.
    lasting: stages may outlast this process.
    stage_needed: called at each subscription, before it is sent; for stages that do not run until then.
    """

    def __init__(
        self,
        layer: EventLayer,
        process: ProcessContext,
        *,
        shape: Callable[[], GridShape | None],
        resolver: Resolver | None = None,
        lasting: bool = False,
    ) -> None:
        self._layer = layer
        self._process = process
        self._shape = shape
        self._lasting = lasting
        self.resolver = resolver
        self.stage_needed: Callable[[], None] = lambda: None
        self._thread: KeptThread | None = None

    @property
    def queries(self) -> int:
        """Number of different queries that this process is subscribed to."""
        return len(self._followed.by_query) if self._used else 0

    @property
    def _used(self) -> bool:
        return "_followed" in self.__dict__  # made by the first subscription, on the event loop

    @cached_property
    def _followed(self) -> LocalSubscriptions:
        return local_subscriptions.LocalSubscriptions(self._layer, self._process, shape=self._shape)

    @cached_property
    def _loop(self) -> ResultsLoop:
        return results_loop.ResultsLoop(self._layer, self._process, self._followed)

    async def subscribe(
        self,
        query: Query,
        *,
        delivery: DeliveryMode = DeliveryMode.STATE,
        deadline_s: float = 10.0,
        steps: bool = False,
        poll_interval_ms: int | None = None,
    ) -> LiveResult:
        """Follow the result of a query. Returns when the result is known; iterate for its changes, `cancel` to end.

        delivery: the weakest accepted mode.
        steps: send a `Step` after the events of each change, and after each full result.
        poll_interval_ms: read the result again at most once in this time; None: as the setting says. The smallest interval of
            all subscribers to a query counts.

        Raises QueryError if the query is malformed, or its result does not follow from writes. Raises SubscriptionError if the
        grid refuses it, has not answered by the deadline, or cannot deliver in this mode.
        """
        if not self._used:
            await anyio.to_thread.run_sync(_load)
        named, (query, recomputation) = query, await query_resolution.resolved(query, self.resolver)
        every_ms = self._process.settings.realtime.poll_interval_ms if poll_interval_ms is None else poll_interval_ms
        options = subscribers.SubscriberOptions(
            exact=delivery is DeliveryMode.EXACT, steps=steps, poll_interval_ms=max(1, every_ms)
        )
        if recomputation is not None and options.exact:
            raise SubscriptionError(f"{recomputation}; follow with delivery='state'", retryable=False)
        query_id = plan_of(query, keep=False).query_id
        try:
            with anyio.fail_after(deadline_s):
                await self._known_shape()
                live = self._followed.join(query_id, query, options, recomputation)
                self._ensure_running()
                try:
                    await anyio.to_thread.run_sync(self._followed.open, query_id)
                    await live.ready()
                    self._require_delivery(live)
                    if live.options.exact:
                        await live.matched()
                except BaseException:
                    with anyio.CancelScope(shield=True):
                        await live.cancel()
                    raise
        except TimeoutError:
            raise SubscriptionError(f"the grid has not shown the result within {deadline_s} s") from None
        if self.resolver is not None and query_resolution.reads_views(named, query):
            followed_views.watch_view(live, named, self.resolver, self._process)
        return live

    def stop(self) -> None:
        """End all subscriptions, and the thread. Blocks until it has ended."""
        if not self._used:
            return
        if self._thread is not None:
            self._thread.stop()
        with self._followed.lock:
            self._thread = None
            self._followed.reader.positions.clear()
            ended = self._followed.end_all()
            for local in ended:
                local.fail(SubscriptionError("this process follows nothing any more"))
        self._followed.part(ended, lasting=self._lasting)

    async def _known_shape(self) -> None:
        while self._followed.shape() is None:  # noqa: ASYNC110
            await anyio.sleep(_LOOK_AGAIN_S)

    def _require_delivery(self, live: LiveResult) -> None:
        with self._followed.lock:  # it is taken over together with what it lacks
            if live.options.exact and live.delivery is not DeliveryMode.EXACT:
                raise SubscriptionError(remedy(live.lacking), retryable=False)

    def _ensure_running(self) -> None:
        with self._followed.lock:
            if self._thread is None:
                self._thread = self._process.supervisor.thread(
                    "subscriptions", self._loop.run, wake=self._followed.work.set
                )
        self.stage_needed()


def _load() -> None:
    """Load the modules of subscriptions, outside the event loop: it takes some 30 ms."""
    followed_views.watch_view, local_subscriptions.LocalSubscriptions, results_loop.ResultsLoop  # noqa: B018
