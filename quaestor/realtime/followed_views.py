"""Followed views: a subscription ends when its view is defined anew, because its query was made from the former definition."""

from __future__ import annotations

import asyncio
import weakref
from typing import Final

from quaestor.errors import QueryError, SubscriptionError
from quaestor.model import Query
from quaestor.realtime.live import LiveResult
from quaestor.realtime.query_resolution import Resolver, resolved
from quaestor.runtime.supervision.process_context import ProcessContext

_LOOK_EVERY_S: Final = 0.5


def watch_view(live: LiveResult, view_query: Query, resolver: Resolver, process: ProcessContext) -> None:
    """End the subscription when its query on the view means another query. The watch ends with the subscription.

    Twice a second the query is resolved again, by the catalog in memory.
    """
    process.supervisor.errands("followed-views").start(_watch(weakref.ref(live), view_query, resolver))


async def _watch(reference: weakref.ref[LiveResult], view_query: Query, resolver: Resolver) -> None:
    while True:
        await asyncio.sleep(_LOOK_EVERY_S)
        live = reference()
        if live is None or live.ended:
            return
        try:
            query, _ = await resolved(view_query, resolver)
        except QueryError as error:
            live.fail(SubscriptionError(str(error), retryable=False))
            return
        if query != live.query:
            live.fail(SubscriptionError(f"the view {view_query.namespace} has a new definition; subscribe again"))
            return
        del live
