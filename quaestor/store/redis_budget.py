"""Budget of bytes for the entries in Redis, which lie beside pipelines that must never be evicted.

An account beside the entries holds the size, the cost and the hits of each. Over the budget the entries of the least benefit
leave. Benefit is hits x cost / bytes (the measure of GreedyDual-Size-Frequency, Cherkasova 1998). Hits age by forward decay
(Cormode et al., ICDE 2009): a hit counts half as much as a hit one half-life later, without any update. A new entry first
spends some time in a part of the budget for newcomers, in order of arrival. Its hits can then be reported before it is
compared. A million query strings, each requested once, therefore evict only one another.

Hits are gathered and reported every few seconds, so a hit costs no round trip. An evicted entry costs a miss, no more.

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
"""Divisor of the budget that gives the newcomers' part; larger entries are compared at once."""
HALF_LIFE_MS: Final = 900_000
OVERHEAD_BYTES: Final = 500
"""Bytes of an entry besides its value: its name, its expiry, its place in the account (measured on Valkey 9, rounded up)."""
USABLE_SHARE: Final = 0.85
"""Usable share of the server's memory, with pipelines and index: a new entry needs room before another leaves."""
_MOST_COST_MS: Final = 1_000
"""Largest cost that counts: otherwise one slow answer would outweigh thousands of popular ones."""
_MOST_TOLD: Final = 500
_MOST_GATHERED: Final = 10_000


class RedisBudget:
    """Account of one deployment's entries. Raises RedisError, OSError.

    name: returns the name of the entry with a digest.
    budget_bytes: of all entries together, as `stored_bytes` counts them.
    limit_bytes: the budget, or less where the server has less memory; see fit().
    clock: hosts must agree within seconds.
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
        """Return the arguments of a script that enters an entry into the account."""
        now_ms = self._clock()
        newcomers_bytes = self.limit_bytes // NEWCOMERS_SHARE
        return [
            digest, stored_bytes(size_bytes), min(max(cost_ms, 1), _MOST_COST_MS), guard, now_ms, now_ms + ttl_ms,
            HALF_LIFE_MS, newcomers_bytes, self.limit_bytes - newcomers_bytes,
        ]  # fmt: skip

    async def account(self, arguments: Sequence[Argument]) -> list[str]:
        """Enter an entry that is about to be stored. Return the digests that have to leave; its own if it is refused."""
        return [left.decode() for left in await self._account(keys=self.keys, args=arguments)]

    async def knows(self, digest: str) -> bool:
        """Whether an entry is in the account, this one or a successor."""
        return bool(await self._known(keys=self.keys, args=[digest]))

    def count_hits(self, digest: str, hits: int = 1) -> None:
        """Note hits to report later. No I/O."""
        if digest in self._hits or len(self._hits) < _MOST_GATHERED:
            self._hits[digest] = self._hits.get(digest, 0) + hits

    async def tell(self) -> int:
        """Report the hits since the last call. Return the bytes in the account."""
        gathered, self._hits = list(self._hits.items()), {}
        used_bytes = 0
        for start in range(0, max(len(gathered), 1), _MOST_TOLD):
            arguments: list[Argument] = [self._clock(), HALF_LIFE_MS]
            for digest, hits in gathered[start : start + _MOST_TOLD]:
                arguments += (digest, hits)
            used_bytes = int(await self._used(keys=self.keys, args=arguments))
        return used_bytes

    async def fit(self, used_bytes: int) -> int:
        """Fit the limit to the server's `maxmemory`, less its other data, and evict entries above it.

        used_bytes: in the account. A server that hides its memory counts as large enough, and so do the servers of a cluster.

        Returns the number of evicted entries: at most two thousand; the next call continues.
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
        """Remove entries from the account, unless others have taken their place.

        dead: digest and guard of each.
        """
        arguments: list[Argument] = [part for entry in dead for part in entry]
        if arguments:
            await self._forget(keys=self.keys, args=arguments)


def stored_bytes(size_bytes: int) -> int:
    """Return the bytes that a value takes in the server, whose allocator rounds up by at most a quarter of a power of two."""
    step = max(16, 1 << max(0, (size_bytes - 1).bit_length() - 3))
    return -(-size_bytes // step) * step + OVERHEAD_BYTES
