"""Watch on the collections from which principals take their rights: a write to them is a change of rights."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from quaestor.errors import SubscriptionError
from quaestor.live.websocket.groups import Engine
from quaestor.model import Operation, Query
from quaestor.realtime.notices import DeliveryMode, Step

_AGAIN_S: Final = 1.0


class RightsWatch:
    """Watch on one collection.

    changed: looks anew at the rights of all sockets. Writes that come meanwhile are looked at together.
    failed: counts and logs an error.
    """

    def __init__(
        self,
        engine: Engine,
        namespace: str,
        changed: Callable[[], Awaitable[None]],
        *,
        failed: Callable[[Exception], None],
    ) -> None:
        self._engine = engine
        self._query = Query(namespace=namespace, operation=Operation.FIND, filter={})
        self._changed = changed
        self._failed = failed

    async def run(self) -> None:
        """Watch until cancelled. After a break the rights are looked at anew, because writes may have been missed."""
        while True:
            try:
                async with await self._engine.subscribe(self._query, delivery=DeliveryMode.STATE, steps=True) as live:
                    async for message in live:
                        if isinstance(message, Step) and not live.waiting:
                            await self._changed()
            except Exception as error:  # whatever it is: without the watch nobody's rights would be taken away
                if not isinstance(error, SubscriptionError):
                    self._failed(error)
                await self._changed()
                await asyncio.sleep(_AGAIN_S)
