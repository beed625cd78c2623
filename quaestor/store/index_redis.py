"""Dependency index in Redis: one script per operation, so each is atomic, and one round trip.

Keys, all with the hash tag `{<deployment>:index}` (one slot of a cluster), and all named to the scripts:

    - dependents   hash   id -> the digest of its resource in the Cache Sketch (16 bytes), and the dependent as JSON without
                          copies_until_ms
    - until        zset   id, scored copies_until_ms
    - edges        zset   "<registration>\\x00<id>", all scored 0: looked up by prefix
    - claims       zset   id, scored with the time of its claim; 0: invalidated, without a claimant yet
    - dead         zset   registration, scored with the time of its invalidation
    - caller:<id>  number of calls of one process; forgotten after an hour of silence

An id is the hash of key, registrations and URLs, so a repeated add has no effect. A dependent that is added after the claim
of its registration becomes a claim without a claimant, which the next claim or reclaim takes. A server that was restarted
without its data, or whose replica lagged at its takeover, counts fewer calls of a process than it has answered. The
dependents are then unknown (`on_lost`). The server must not evict keys under memory pressure (`maxmemory-policy noeviction`,
as for the pipelines).
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Sequence
from typing import Any

from redis.exceptions import RedisError

from quaestor.cache_sketch import wire_format
from quaestor.cache_sketch.partitions import key_of
from quaestor.errors import StoreError
from quaestor.model import Dependent
from quaestor.redis.clients import SharedClient
from quaestor.redis.scripts import RedisScript
from quaestor.store.scripts import script

DEAD_MS = 600_000
"""Time for which a dead registration is remembered, so that a late add() is detected."""
MAX_DEAD = 100_000
"""Largest number of remembered dead registrations, the youngest ones."""
MAX_DEPENDENTS = 1_000_000
"""Largest number of dependents, about 1 GB.

Beyond it none is added, so no more is cached, until copies expire or are purged.
"""
SWEEP = 500
"""Largest number of expired dependents that one script forgets: keeps it short."""
_CALLER_LIVES_MS = 3_600_000
_SWEEPS = 20
"""Largest number of scripts in one reclaim(): each second it can forget the most that one process adds in a second."""


class RedisIndex:
    """Dependency index in Redis. Implements DependencyIndex. Costs O(log n) a dependent.

    client: belongs to the caller; it must not decode responses.
    deployment: indexes of different deployments share nothing.
    max_dependents: number of dependents beyond which add() raises StoreError.
    max_dead: number of invalidated registrations that are remembered.
    on_lost: called when the server has forgotten dependents that this object added; in the event loop, at once and once each
        time. The dependents are then unknown.
    """

    def __init__(
        self,
        client: SharedClient,
        *,
        deployment: str,
        max_dependents: int = MAX_DEPENDENTS,
        max_dead: int = MAX_DEAD,
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        self.client = client
        self._on_lost = on_lost
        self._max_dependents = max_dependents
        self._max_dead = max_dead
        prefix = f"quaestor:{{{deployment}:index}}:"
        self._caller_prefix = f"{prefix}caller:"
        self._caller, self._answered = _new_caller(), 0
        self.keys = [prefix + name for name in ("dependents", "until", "edges", "claims", "dead")]
        self._add = script(client, "index_add")
        self._claim = script(client, "index_claiming", "index_claim", frees=True)
        self._settle = script(client, "index_settle", frees=True)
        self._reclaim = script(client, "index_reclaim", frees=True)

    async def add(self, dependent: Dependent) -> None:
        """See DependencyIndex. Raises StoreError also if the index is full."""
        arguments = [
            self._max_dependents, _identity(dependent), _encode(dependent), dependent.copies_until_ms, *dependent.registrations
        ]  # fmt: skip
        if not (await self._counted(self._add, arguments))[0]:
            raise StoreError(f"the dependency index is full: copies of {self._max_dependents} entries are alive")

    def claim_limits(self, now_ms: int) -> tuple[int, int, int]:
        """Return the arguments of a claiming script before the registrations: now_ms, forget_dead_before_ms, max_dead."""
        return now_ms, now_ms - DEAD_MS, self._max_dead

    async def claim(self, registration_ids: Sequence[str], *, now_ms: int) -> list[Dependent]:
        """See DependencyIndex."""
        if not registration_ids:
            return []
        return _decode_all(await self._call(self._claim, [*self.claim_limits(now_ms), *registration_ids]))

    async def settle(self, dependents: Sequence[Dependent]) -> None:
        """See DependencyIndex."""
        if dependents:
            ids = [_identity(dependent) for dependent in dependents]
            edges = [
                f"{registration}\0{i}"
                for i, dependent in zip(ids, dependents, strict=True)
                for registration in dependent.registrations
            ]
            await self._call(self._settle, [len(ids), *ids, *edges])

    async def reclaim(self, *, claimed_before_ms: int, now_ms: int) -> list[Dependent]:
        """See DependencyIndex. Forgets dependents without a living copy."""
        reply: list[bytes] = []
        for _ in range(_SWEEPS):
            more, *some = await self._counted(self._reclaim, [claimed_before_ms, now_ms, SWEEP])
            reply += some
            if not more:
                break
        return _decode_all(reply)

    async def _counted(self, script: RedisScript, arguments: list[Any]) -> list[Any]:
        """Return the reply to a script that counts this object's calls.

        A count below the answered calls shows a loss of data.
        """
        caller, answered = self._caller, self._answered
        key = self._caller_prefix + caller
        calls, *values = await self._call(script, [_CALLER_LIVES_MS, *arguments], key)
        if caller == self._caller:
            if calls <= answered:
                self._caller, self._answered = _new_caller(), 0
                self._on_lost()
            else:
                self._answered = max(self._answered, calls)
        return list(values)

    async def _call(self, script: RedisScript, arguments: list[Any], *keys: str) -> Any:
        try:
            return await script(keys=[*self.keys, *keys], args=arguments)
        except (RedisError, OSError) as error:
            raise StoreError(f"the dependency index in Redis did not answer: {error}") from error


def _new_caller() -> str:
    return secrets.token_hex(8)


def _identity(dependent: Dependent) -> str:
    parts = json.dumps((dependent.key, dependent.registrations, dependent.urls))
    return hashlib.blake2b(parts.encode(), digest_size=16).hexdigest()


def _encode(dependent: Dependent) -> bytes:
    fields = {
        "key": dependent.key,
        "registrations": dependent.registrations,
        "resource": dependent.resource,
        "urls": dependent.urls,
        "tags": dependent.tags,
    }
    return key_of(dependent.resource)[: wire_format.DIGEST_BYTES] + json.dumps(fields).encode()


def decode(payload: bytes, copies_until_ms: bytes) -> Dependent:
    """Return the dependent in two parts of a script's reply."""
    fields = json.loads(payload[wire_format.DIGEST_BYTES :])
    return Dependent(
        key=fields["key"],
        registrations=tuple(fields["registrations"]),
        resource=fields["resource"],
        urls=tuple(fields["urls"]),
        tags=tuple(fields["tags"]),
        copies_until_ms=int(float(copies_until_ms)),
    )


def _decode_all(reply: list[bytes]) -> list[Dependent]:
    """Return the dependents of a reply, which alternates payload and copies_until_ms."""
    return [decode(payload, until_ms) for payload, until_ms in zip(reply[::2], reply[1::2], strict=True)]
