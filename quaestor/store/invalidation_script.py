"""Effects of an invalidation on shared data, as one operation: claim, update the sketch, evict.

Where index, sketch and store live in one Redis, the operation is one script: one round trip, and no process sees a part of
it. Only the process that holds the entries in memory knows which to evict. An entry that has left its memory is evicted by a
further call, because a script must know every key that it touches.

In a cluster the data lie on several servers, entries everywhere, so the three steps follow one another. One slot for all
would give that server all the work, and its memory all the entries.
"""

from __future__ import annotations

from collections.abc import Sequence

from quaestor.cache_sketch import RedisCacheSketch
from quaestor.ports import ClaimedDependent, Guarded, SharedInvalidation
from quaestor.redis.clients import spans_servers
from quaestor.store import entry_codec
from quaestor.store.index_redis import RedisIndex, decode
from quaestor.store.invalidation_steps import StepByStep
from quaestor.store.redis import RedisStore
from quaestor.store.scripts import source


def shared_invalidation(*, index: RedisIndex, sketch: RedisCacheSketch, store: RedisStore) -> SharedInvalidation:
    """Return the SharedInvalidation of parts in Redis, on several clients or one: a single script if they share a server."""
    one_server = index.client is sketch.client is store.client and not spans_servers(store.client)
    return (RedisInvalidation if one_server else StepByStep)(index=index, sketch=sketch, store=store)


class RedisInvalidation:
    """Shared invalidation for an index, a sketch and a store in one Redis. Implements SharedInvalidation. O(log n) a dependent.

    Keep calls to a few hundred registrations: while a script runs, the server does nothing else.
    """

    def __init__(self, *, index: RedisIndex, sketch: RedisCacheSketch, store: RedisStore) -> None:
        self._index = index
        self._sketch = sketch
        self._store = store
        self._script = sketch.joined(source("index_claiming", "store_evicting", "budget", "invalidate"))

    async def claim_and_evict(
        self, registration_ids: Sequence[str], entries: Sequence[Guarded], *, now_ms: int
    ) -> list[ClaimedDependent]:
        if not registration_ids and not entries:
            return []
        reply = await self._sketch.run(
            self._script,
            keys=[*self._index.keys, *self._store.budget.keys, *(self._store.name(entry.key) for entry in entries)],
            arguments=[
                *self._index.claim_limits(now_ms),
                *entry_codec.GUARD_RANGE,
                len(entries),
                *(entry_codec.guard(entry.registrations) for entry in entries),
                *registration_ids,
            ],
            now_ms=now_ms,
        )
        gone = {(entry.key, entry.registrations) for entry in entries}
        claimed = []
        for payload, until_ms, outside_ms in zip(reply[::3], reply[1::3], reply[2::3], strict=True):
            dependent = decode(payload, until_ms)
            evicted = (dependent.key, dependent.registrations) in gone
            claimed.append(ClaimedDependent(dependent=dependent, outside_ms=outside_ms, evicted=evicted))
        return claimed
