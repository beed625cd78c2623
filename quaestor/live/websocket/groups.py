"""Groups of one process: equal subscriptions share one. A group without members is kept for clients that come back."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol

import bson

from quaestor.clock import Clock
from quaestor.event_layer.codec import BSON_OPTIONS
from quaestor.event_layer.query_fields import query_fields
from quaestor.live.followed_routes import server_stops
from quaestor.live.websocket.catching_up import CatchingUp
from quaestor.live.websocket.group import QueryGroup
from quaestor.live.websocket.limits import SocketLimits
from quaestor.live.websocket.problems import ProtocolError
from quaestor.live.websocket.queries import WantedResult
from quaestor.model import Query
from quaestor.observability.telemetry import Telemetry
from quaestor.read_path.service import ReadPath
from quaestor.realtime.live import LiveResult
from quaestor.realtime.notices import DeliveryMode
from quaestor.rest.database import Connection


class Engine(Protocol):
    """Parts of a Quaestor that live queries need."""

    @property
    def telemetry(self) -> Telemetry:
        """Its metrics and events."""

    @property
    def read_path(self) -> ReadPath:
        """Its read path."""

    async def subscribe(
        self, query: Query, *, delivery: DeliveryMode | str = ..., steps: bool = ..., poll_interval_ms: int | None = ...
    ) -> LiveResult:
        """Follow the result of a query."""


class QueryGroups:
    """Groups of one endpoint in one process. Use from one event loop."""

    def __init__(self, engine: Engine, connection: Connection, *, limits: SocketLimits, clock: Clock) -> None:
        self._engine = engine
        self._catching_up = CatchingUp(connection, engine.read_path.own_writes)
        self._limits = limits
        self._clock = clock
        self._groups: dict[tuple[bytes, DeliveryMode, int | None], asyncio.Future[QueryGroup]] = {}
        self._empty_since_ms: dict[QueryGroup, int] = {}
        self._errands = engine.read_path.process.supervisor.errands("live-queries")

    def __len__(self) -> int:
        return len(self._groups)

    async def of(self, wanted: WantedResult) -> QueryGroup:
        """The group of a result. Its rows contain every write that MongoDB has acknowledged before the call.

        Raises QueryError, SubscriptionError, ProtocolError.
        """
        key = (
            bson.encode(query_fields(wanted.query), codec_options=BSON_OPTIONS),
            wanted.delivery,
            wanted.poll_interval_ms,
        )
        acknowledged = self._catching_up.acknowledged()
        while True:
            begun = self._groups.get(key)
            if begun is None:
                begun = self._groups[key] = asyncio.get_running_loop().create_future()
                self._errands.start(self._follow(key, wanted, begun))
            group = await asyncio.shield(begun)
            # Also a new group may find an older result: another process, or another group of this one, follows its query.
            await self._catching_up.wait(group.live, await acknowledged)
            while group.live.waiting and group.failed is None:  # noqa: ASYNC110
                await asyncio.sleep(0)  # its task takes the events that have arrived
            if group.failed is None:
                return group
            await asyncio.sleep(0)

    def expect(self) -> None:
        """Make the grid report its progress at once, for a while."""
        self._engine.read_path.own_writes.expect()

    def keep_house(self) -> None:
        """Once a second: end groups whose last member left long ago, and the oldest beyond the limit. O(empty groups)."""
        now_ms = self._clock()
        empty = sorted(self._empty_since_ms.items(), key=lambda pair: pair[1])
        spare = 0 if server_stops() else len(empty) - self._limits.lingering  # the next process goes on with them
        for place, (group, since_ms) in enumerate(empty):
            if place < spare or now_ms - since_ms > self._limits.resume_s * 1_000:
                self._errands.start(group.live.cancel())

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run work beside the groups, until they end."""
        return self._errands.start(work)

    def failed(self, error: Exception) -> None:
        """Count and log an error that no client has caused."""
        self._errands.failed(error)

    async def aclose(self) -> None:
        """End all groups."""
        await self._errands.aclose()

    async def _follow(self, key: Any, wanted: WantedResult, begun: asyncio.Future[QueryGroup]) -> None:
        """Follow a query from its first subscription until a while after its last one."""
        group: QueryGroup | None = None
        try:
            live = await self._engine.subscribe(
                wanted.query, delivery=wanted.delivery, steps=True, poll_interval_ms=wanted.poll_interval_ms
            )
            async with live:
                group = QueryGroup(
                    wanted, live, limits=self._limits, clock=self._clock, empty_since_ms=self._empty_since_ms
                )
                await group.begin()
                begun.set_result(group)
                await group.run()
        except Exception as error:
            if begun.done():
                raise
            begun.set_exception(error)
            begun.exception()  # its waiters may have gone
        finally:
            if self._groups.get(key) is begun:
                del self._groups[key]
            begun.cancel()
            if group is not None and group.failed is None:
                group.fail(ProtocolError(503, "the endpoint follows the query no longer; subscribe again"))
            if group is not None:  # its members have left
                self._empty_since_ms.pop(group, None)
