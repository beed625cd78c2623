"""Outbox of purges in Redis: one script per operation, so each is atomic, and one round trip.

Keys of a queue, all with the hash tag `{<deployment>:purges}` (one slot of a cluster):

    - waiting   zset  member, scored with its due time
    - taken     zset  "<token>|<member>", scored with the end of its lease
    - age       zset  member of phase 0, scored with the time since which it is open
    - about     hash  member -> "<attempts> <until_ms>"
    - dead      hash  member -> "<until_ms> <reason>"
    - buried    zset  member, scored with the time at which it was given up; the 10,000 latest
    - sender    the token of the queue's only sender, while it has one
    - until     time after which no copy of any purge ever put is alive
    - put       hash  minute of the hour -> "<minute> <purges put>"

A note is `note:<name>`, with the same hash tag.

Buckets and budgets belong to accounts, shared by any deployments: `quaestor/store/purge_accounts_redis.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from redis.exceptions import RedisError

from quaestor.errors import StoreError
from quaestor.purge_ports import MOST_OPEN, DeadPurge, PurgeAccounts, QueuedPurge, QueueSize
from quaestor.redis.clients import SharedClient
from quaestor.redis.scripts import RedisScript
from quaestor.store.purge_accounts_redis import RedisAccounts
from quaestor.store.scripts import script

_CHUNK: Final = 1_000
"""Members in one script: keeps it to a few milliseconds, and a command within the arguments that Lua may pass on."""


class RedisOutbox:
    """Outbox of purges in Redis. Implements PurgeOutbox. Costs O(log n) a purge.

    client: belongs to the caller; it must not decode responses.
    deployment: outboxes of different deployments share only the buckets.
    most: largest number of open purges in a queue.
    """

    durable = True

    def __init__(self, client: SharedClient, *, deployment: str, most: int = MOST_OPEN) -> None:
        self.accounts: PurgeAccounts = RedisAccounts(client)
        self._client = client
        self._prefix = f"quaestor:{{{deployment}:purges}}:"
        self._most = most
        self._put = script(client, "outbox_put")
        self._take = script(client, "outbox_take", frees=True)
        self._done = script(client, "outbox_done", frees=True)
        self._end = script(client, "outbox_end", frees=True)
        self._replay = script(client, "outbox_replay", frees=True)
        self._lead = script(client, "outbox_lead", frees=True)

    async def put(
        self, queue: str, members: Sequence[str], *, until_ms: int, now_ms: int, token: str = "", lease_ms: int = 0
    ) -> None:
        """See PurgeOutbox. Raises StoreError also if there are too many."""
        keys = [f"{self._prefix}queues", *self._keys(queue, "waiting", "taken", "age", "about", "until", "put")]
        for start in range(0, len(members), _CHUNK):
            chunk = members[start : start + _CHUNK]
            arguments = [queue, now_ms, until_ms, token, now_ms + lease_ms, self._most, *chunk]
            if not await self._call(self._put, keys, arguments):
                raise StoreError(f"{self._most} purges of {queue} are open: the CDN takes fewer than are put")

    async def take(self, queue: str, *, token: str, count: int, lease_ms: int, now_ms: int) -> list[QueuedPurge]:
        """See PurgeOutbox."""
        keys = self._keys(queue, "waiting", "taken", "age", "about")
        _, *reply = await self._call(self._take, keys, [token, min(count, _CHUNK), now_ms + lease_ms, now_ms])
        rows = zip(reply[::4], reply[1::4], reply[2::4], reply[3::4], strict=True)
        return [
            QueuedPurge(member.decode(), token, int(float(put)), int(until_ms), int(attempts))
            for member, put, attempts, until_ms in rows
        ]

    async def done(
        self, queue: str, taken: Sequence[QueuedPurge], *, again: Sequence[tuple[str, int]] = (), now_ms: int
    ) -> None:
        """See PurgeOutbox."""
        keys = self._keys(queue, "waiting", "taken", "age", "about")
        due = [part for phase, due_ms in again for part in (phase, due_ms)]
        for start in range(0, len(taken), _CHUNK):
            chunk = taken[start : start + _CHUNK]
            fields = [field for purge in chunk for field in (purge.token, purge.member, purge.until_ms)]
            await self._call(self._done, keys, [len(chunk), *fields, *due])

    async def retry(
        self, queue: str, taken: Sequence[QueuedPurge], *, due_ms: int, failed: bool = True, now_ms: int
    ) -> None:
        """See PurgeOutbox."""
        taken = [QueuedPurge(*purge[:-1], attempts=purge.attempts + failed) for purge in taken]
        await self._finish("retry" if failed else "release", queue, taken, now_ms, due_ms)

    async def renew(self, queue: str, taken: Sequence[QueuedPurge], *, lease_ms: int, now_ms: int) -> None:
        """See PurgeOutbox."""
        await self._finish("renew", queue, taken, now_ms, now_ms + lease_ms)

    async def bury(self, queue: str, taken: Sequence[QueuedPurge], *, reason: str, now_ms: int) -> None:
        """See PurgeOutbox."""
        await self._finish("bury", queue, taken, now_ms, reason)

    async def open(self, queue: str, members: Sequence[str]) -> list[bool]:
        """See PurgeOutbox."""
        if not members:
            return []
        scores = await self._command("ZMSCORE", *self._keys(queue, "age"), *members)
        return [score is not None for score in scores]

    async def lead(self, queue: str, *, token: str, lease_ms: int, now_ms: int) -> bool:
        """See PurgeOutbox. The lease goes by the server's clock."""
        return bool(await self._call(self._lead, self._keys(queue, "sender"), [token, lease_ms]))

    async def resign(self, queue: str, *, token: str) -> None:
        """See PurgeOutbox."""
        await self._call(self._lead, self._keys(queue, "sender"), [token, 0])

    async def size(self, queue: str) -> QueueSize:
        """See PurgeOutbox."""
        waiting, taken, buried, age, until = self._keys(queue, "waiting", "taken", "buried", "age", "until")
        until_ms = await self._command("GET", until)
        oldest = await self._command("ZRANGE", age, 0, 0, "WITHSCORES")
        return QueueSize(
            waiting=await self._command("ZCARD", waiting),
            taken=await self._command("ZCARD", taken),
            dead=await self._command("ZCARD", buried),
            oldest_ms=int(float(oldest[0][1] if isinstance(oldest[0], tuple | list) else oldest[1]))
            if oldest
            else None,
            until_ms=None if until_ms is None else int(until_ms),
        )

    async def busiest(self, queue: str, *, now_ms: int) -> float:
        """See PurgeOutbox."""
        (put,) = self._keys(queue, "put")
        first = now_ms // 60_000 - 59
        minutes = [tuple(map(int, value.split())) for value in await self._command("HVALS", put)]
        return max((number for minute, number in minutes if minute >= first), default=0) / 60

    async def note(self, name: str, text: str, *, for_ms: int) -> None:
        """See PurgeOutbox."""
        await self._command("SET", f"{self._prefix}note:{name}", text, "PX", for_ms)

    async def noted(self, name: str) -> str | None:
        """See PurgeOutbox."""
        note = await self._command("GET", f"{self._prefix}note:{name}")
        return None if note is None else str(note.decode())

    async def queues(self) -> list[str]:
        """See PurgeOutbox."""
        return sorted(name.decode() for name in await self._command("SMEMBERS", f"{self._prefix}queues"))

    async def waiting(self, queue: str, *, count: int) -> list[QueuedPurge]:
        """See PurgeOutbox."""
        (age, about) = self._keys(queue, "age", "about")
        members = [member.decode() for member in await self._command("ZRANGE", age, 0, count - 1)]
        purges = []
        for member in members:
            description = await self._command("HGET", about, member)
            put = await self._command("ZSCORE", age, member)
            if description is not None and put is not None:
                attempts, until_ms = map(int, description.split())
                purges.append(QueuedPurge(member, "", int(float(put)), until_ms, attempts))
        return purges

    async def dead(self, queue: str, *, count: int) -> list[DeadPurge]:
        """See PurgeOutbox."""
        buried, dead = self._keys(queue, "buried", "dead")
        purges = []
        for member in await self._command("ZREVRANGE", buried, 0, count - 1):
            description = await self._command("HGET", dead, member)
            at = await self._command("ZSCORE", buried, member)
            if description is not None and at is not None:
                until_ms, _, reason = description.decode().partition(" ")
                purges.append(DeadPurge(member.decode(), reason, int(float(at)), int(until_ms)))
        return purges

    async def replay(self, queue: str, *, now_ms: int) -> int:
        """See PurgeOutbox."""
        keys = self._keys(queue, "waiting", "age", "about", "dead", "buried")
        return int(await self._call(self._replay, keys, [now_ms]))

    async def drop(self, queue: str) -> int:
        """See PurgeOutbox."""
        dead, buried = self._keys(queue, "dead", "buried")
        size = int(await self._command("ZCARD", buried))
        await self._command("DEL", dead, buried)
        return size

    async def _finish(
        self,
        what: str,
        queue: str,
        taken: Sequence[QueuedPurge],
        now_ms: int,
        argument: str | int,
    ) -> None:
        keys = self._keys(queue, "waiting", "taken", "age", "about", "dead", "buried")
        for start in range(0, len(taken), _CHUNK):
            chunk = taken[start : start + _CHUNK]
            fields = [field for purge in chunk for field in (purge.token, purge.member, purge.until_ms, purge.attempts)]
            await self._call(self._end, keys, [what, now_ms, argument, *fields])

    def _keys(self, queue: str, *names: str) -> list[str]:
        return [f"{self._prefix}{queue}:{name}" for name in names]

    async def _call(self, script: RedisScript, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        try:
            return await script(keys=keys, args=arguments)
        except (RedisError, OSError) as error:
            raise StoreError(f"the outbox of purges in Redis did not answer: {error}") from error

    async def _command(self, *command: Any) -> Any:
        try:
            return await self._client.execute_command(*command)
        except (RedisError, OSError) as error:
            raise StoreError(f"the outbox of purges in Redis did not answer: {error}") from error
