"""Budget of bytes for the entries in Redis, which are beside pipelines that must never be evicted.

An account beside the entries says how large each is, what it cost to make and how often it was found; over the budget, those
leave whose benefit is the least: hits x cost / bytes (the measure of GreedyDual-Size-Frequency, Cherkasova 1998). Hits age by
forward decay (Cormode et al., ICDE 2009): one counts half as much as one a half-life later, and nothing has to be touched for
that. What is new first spends some time in a part of the budget of its own, in order of arrival, so that its hits can be told
before it is compared: a million query strings that nobody asks for twice drive out one another, and nothing else.

Hits are gathered and told every few seconds, so a hit costs no round trip. An entry that was evicted is a miss, no more.

Keys, of one slot: `quaestor:{<deployment>:entries}:` records, newcomers, kept, ends, totals; see lua/budget.lua.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from redis.exceptions import ResponseError

from quaestor.clock import Clock, system_clock
from quaestor.redis.clients import SharedClient, spans_servers
from quaestor.redis.scripts import Argument
from quaestor.store.scripts import script

DEFAULT_BYTES: Final = 512 * 1024 * 1024
NEWCOMERS_SHARE: Final = 16
"""One part in so many of the budget is for what is new; larger entries are compared at once."""
HALF_LIFE_MS: Final = 900_000
OVERHEAD_BYTES: Final = 500
"""Of an entry, besides its value: its name, its expiry, its place in the account (measured on Valkey 9, rounded up)."""
USABLE_SHARE: Final = 0.85
"""Of the server's memory, pipelines and index included: an entry that comes needs room before another leaves."""
_MOST_COST_MS: Final = 1_000
"""A slow answer counts no more: else one that takes long would be worth thousands that are asked for."""
_MOST_TOLD: Final = 500
_MOST_GATHERED: Final = 10_000


class RedisBudget:
    """The account of one deployment's entries. Raises RedisError, OSError.

    name: of the entry with a digest.
    budget_bytes: of all entries together, as `stored_bytes` counts them.
    limit_bytes: the budget, or less where the server has less memory; see fit().
    clock: hosts are expected to agree within seconds.
    """

    def __init__(
        self,
        client: SharedClient,
        *,
        deployment: str,
        name: Callable[[str], str],
        budget_bytes: int = DEFAULT_BYTES,
        clock: Clock = system_clock,
    ) -> None:
        prefix = f"quaestor:{{{deployment}:entries}}:"
        self.keys = [prefix + name for name in ("records", "newcomers", "kept", "ends", "totals")]
        self.budget_bytes = self.limit_bytes = budget_bytes
        self._client, self._name = client, name
        self._clock = clock
        self._hits: dict[str, int] = {}
        self._account = script(client, "budget", "budget_put", "store_account")
        self._used = script(client, "budget", "store_used", frees=True)
        self._shrink = script(client, "budget", "store_shrink", frees=True)
        self._forget = script(client, "budget", "store_forget", frees=True)
        self._known = script(client, "budget", "store_known", frees=True)

    def arguments(self, digest: str, *, size_bytes: int, cost_ms: int, guard: bytes, ttl_ms: int) -> list[Argument]:
        """Arguments of a script that takes an entry into the account."""
        now_ms = self._clock()
        newcomers_bytes = self.limit_bytes // NEWCOMERS_SHARE
        return [
            digest, stored_bytes(size_bytes), min(max(cost_ms, 1), _MOST_COST_MS), guard, now_ms, now_ms + ttl_ms,
            HALF_LIFE_MS, newcomers_bytes, self.limit_bytes - newcomers_bytes,
        ]  # fmt: skip

    async def account(self, arguments: Sequence[Argument]) -> list[str]:
        """Take in an entry that is about to be stored. Returns the digests of what has to leave; its own if it is not wanted."""
        return [left.decode() for left in await self._account(keys=self.keys, args=arguments)]

    async def knows(self, digest: str) -> bool:
        """Whether an entry is in the account, this one or another in its place."""
        return bool(await self._known(keys=self.keys, args=[digest]))

    def found(self, digest: str, hits: int = 1) -> None:
        """Note hits, to be told later. No I/O."""
        if digest in self._hits or len(self._hits) < _MOST_GATHERED:
            self._hits[digest] = self._hits.get(digest, 0) + hits

    async def tell(self) -> int:
        """Tell the hits since the last time. Returns the bytes in the account."""
        gathered, self._hits = list(self._hits.items()), {}
        used_bytes = 0
        for start in range(0, max(len(gathered), 1), _MOST_TOLD):
            told: list[Argument] = [self._clock(), HALF_LIFE_MS]
            for digest, hits in gathered[start : start + _MOST_TOLD]:
                told += (digest, hits)
            used_bytes = int(await self._used(keys=self.keys, args=told))
        return used_bytes

    async def fit(self, used_bytes: int) -> int:
        """Fit the limit to the server's `maxmemory`, less what lies there besides the entries, and evict what is above it.

        used_bytes: in the account. A server that hides its memory is taken to have enough, and so are the servers of a cluster.

        Returns the number of evicted entries: at most two thousand, and the next call goes on.
        """
        if spans_servers(self._client):
            return 0
        try:
            memory = await self._client.info("memory")
        except ResponseError:
            return 0
        bound = int(memory.get("maxmemory", 0))
        besides = max(0, int(memory.get("used_memory", 0)) - used_bytes)
        room = int(bound * USABLE_SHARE) - besides if bound else self.budget_bytes
        self.limit_bytes = max(NEWCOMERS_SHARE, min(self.budget_bytes, room))
        if used_bytes <= self.limit_bytes:
            return 0
        newcomers_bytes = self.limit_bytes // NEWCOMERS_SHARE
        left = await self._shrink(keys=self.keys, args=[newcomers_bytes, self.limit_bytes - newcomers_bytes])
        for start in range(0, len(left), _MOST_TOLD):
            await self._client.unlink(*(self._name(digest.decode()) for digest in left[start : start + _MOST_TOLD]))
        return len(left)

    async def forget(self, dead: Iterable[tuple[str, bytes]]) -> None:
        """Take entries out of the account, unless others have taken their place.

        dead: digest and guard of each.
        """
        told: list[Argument] = [part for one in dead for part in one]
        if told:
            await self._forget(keys=self.keys, args=told)


def stored_bytes(size_bytes: int) -> int:
    """Bytes that a value of this size takes in the server: its allocator rounds up to a quarter of a power of two, at most."""
    step = max(16, 1 << max(0, (size_bytes - 1).bit_length() - 3))
    return -(-size_bytes // step) * step + OVERHEAD_BYTES
