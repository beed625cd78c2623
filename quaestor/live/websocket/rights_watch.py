"""Watch on the collections from which principals take their rights: a write to them is a change of rights."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Set
from typing import Any, Final

import anyio
from bson import ObjectId

from quaestor.errors import SubscriptionError
from quaestor.incremental import ResultEvent
from quaestor.live.websocket.groups import Engine
from quaestor.model import Operation, Query
from quaestor.realtime.notices import DeliveryMode, Step

_AGAIN_S: Final = 1.0
_NAMES: Final = str | int | ObjectId


class RightsWatch:
    """Watch on one collection.

    Which clients a record concerns is known to the application only. A record usually names its user, so clients whose user
    stands in it come first, and then all.

    changed: looks anew at the rights of the clients of these users; None: of all clients.
    failed: counts and logs an error.
    """

    def __init__(
        self,
        engine: Engine,
        namespace: str,
        changed: Callable[[Set[str] | None], Awaitable[None]],
        *,
        failed: Callable[[Exception], None],
    ) -> None:
        self._engine = engine
        self._query = Query(namespace=namespace, operation=Operation.FIND, filter={})
        self._changed = changed
        self._failed = failed
        self._all_due = asyncio.Event()

    async def run(self) -> None:
        """Watch until cancelled. After a break the rights are looked at anew, because writes may have been missed."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._look_at_all)
            while True:
                try:
                    await self._follow()
                except Exception as error:  # whatever it is: without the watch nobody's rights would be taken away
                    if not isinstance(error, SubscriptionError):
                        self._failed(error)
                    self._all_due.set()
                    await asyncio.sleep(_AGAIN_S)

    async def _follow(self) -> None:
        async with await self._engine.subscribe(self._query, delivery=DeliveryMode.STATE, steps=True) as live:
            users: set[str] = set()
            async for message in live:
                if isinstance(message, ResultEvent):
                    users |= _names_in(message.document)
                elif isinstance(message, Step) and not live.waiting:
                    self._all_due.set()
                    await self._changed(users)
                    users = set()

    async def _look_at_all(self) -> None:
        """Writes that come while all clients are looked at are looked at together afterwards."""
        while True:
            await self._all_due.wait()
            self._all_due.clear()
            await self._changed(None)


def _names_in(document: Any) -> set[str]:
    """Values of a record that may be the name of its user."""
    values = document.values() if isinstance(document, Mapping) else ()
    return {str(value) for value in values if isinstance(value, _NAMES)}
