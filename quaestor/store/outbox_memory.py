"""Outbox of purges in this process's memory, for the embedded mode.

Open purges are lost when the process dies, with all its other knowledge. The next start invalidates all answers that it
handed out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from quaestor.errors import StoreError
from quaestor.purge_ports import MOST_OPEN, DeadPurge, PurgeAccounts, QueuedPurge, QueueSize
from quaestor.store.purge_accounts_memory import MemoryAccounts

_MOST_DEAD = 10_000


@dataclass(slots=True)
class _Queue:
    """One queue; see the keys of RedisOutbox."""

    waiting: dict[str, int] = field(default_factory=dict)
    taken: dict[str, dict[str, int]] = field(default_factory=dict)
    age: dict[str, int] = field(default_factory=dict)
    about: dict[str, tuple[int, int]] = field(default_factory=dict)
    dead: dict[str, DeadPurge] = field(default_factory=dict)
    put: dict[int, int] = field(default_factory=dict)


class MemoryOutbox:
    """Outbox of purges in memory. Implements PurgeOutbox. Use from one event loop. O(waiting) a take."""

    durable = False

    def __init__(self, most: int = MOST_OPEN) -> None:
        self._most = most
        self._queues: defaultdict[str, _Queue] = defaultdict(_Queue)
        self.accounts: PurgeAccounts = MemoryAccounts()
        self._notes: dict[str, str] = {}

    async def put(
        self, queue: str, members: Sequence[str], *, until_ms: int, now_ms: int, token: str = "", lease_ms: int = 0
    ) -> None:
        """See PurgeOutbox. Raises StoreError if there are too many."""
        q = self._queues[queue]
        if len(q.waiting) + len(q.taken) + len(members) > self._most:
            raise StoreError(f"{self._most} purges of {queue} are open: the CDN takes fewer than are put")
        new = sum(bool(token) or member not in q.waiting for member in members)
        minute = now_ms // 60_000
        q.put = {at_minute: number for at_minute, number in q.put.items() if at_minute > minute - 60}
        q.put[minute] = q.put.get(minute, 0) + new
        for member in members:
            q.age.setdefault(member, now_ms)
            attempts, before_ms = q.about.get(member, (0, 0))
            q.about[member] = (attempts, max(before_ms, until_ms))
            if token:
                q.taken.setdefault(member, {})[token] = now_ms + lease_ms
            else:
                q.waiting[member] = min(now_ms, q.waiting.get(member, now_ms))

    async def take(self, queue: str, *, token: str, count: int, lease_ms: int, now_ms: int) -> list[QueuedPurge]:
        """See PurgeOutbox."""
        q = self._queues[queue]
        for member, token_of in _over(q, now_ms):
            _let_go(q, member, token_of)
            q.waiting.setdefault(member, now_ms)
        due = sorted((due_ms, member) for member, due_ms in q.waiting.items() if due_ms <= now_ms)[:count]
        purges = []
        for _, member in due:
            del q.waiting[member]
            attempts, until_ms = q.about.get(member, (0, 0))
            if until_ms <= now_ms:
                self._forget(q, member)
                continue
            q.taken.setdefault(member, {})[token] = now_ms + lease_ms
            purges.append(QueuedPurge(member, token, q.age.get(member, now_ms), until_ms, attempts))
        return purges

    async def done(
        self, queue: str, taken: Sequence[QueuedPurge], *, again: Sequence[tuple[str, int]] = (), now_ms: int
    ) -> None:
        """See PurgeOutbox."""
        q = self._queues[queue]
        for purge in taken:
            _let_go(q, purge.member, purge.token)
            self._forget(q, purge.member)
            if purge.member.startswith("0"):
                for phase, due_ms in again:
                    if due_ms < purge.until_ms:
                        later = phase + purge.member[1:]
                        q.waiting[later] = max(due_ms, q.waiting.get(later, 0))
                        q.about[later] = (0, purge.until_ms)

    async def retry(
        self, queue: str, taken: Sequence[QueuedPurge], *, due_ms: int, failed: bool = True, now_ms: int
    ) -> None:
        """See PurgeOutbox."""
        q = self._queues[queue]
        for purge in taken:
            if _let_go(q, purge.member, purge.token):
                age_ms = q.age.get(purge.member, now_ms)
                q.waiting.setdefault(purge.member, due_ms if failed else min(due_ms, age_ms))
                until_ms = max(purge.until_ms, q.about.get(purge.member, (0, 0))[1])
                q.about[purge.member] = (purge.attempts + failed, until_ms)

    async def renew(self, queue: str, taken: Sequence[QueuedPurge], *, lease_ms: int, now_ms: int) -> None:
        """See PurgeOutbox."""
        q = self._queues[queue]
        for purge in taken:
            if purge.token in q.taken.get(purge.member, ()):
                q.taken[purge.member][purge.token] = now_ms + lease_ms

    async def bury(self, queue: str, taken: Sequence[QueuedPurge], *, reason: str, now_ms: int) -> None:
        """See PurgeOutbox."""
        q = self._queues[queue]
        for purge in taken:
            _let_go(q, purge.member, purge.token)
            self._forget(q, purge.member)
            q.dead.pop(purge.member, None)
            q.dead[purge.member] = DeadPurge(purge.member, reason, now_ms, purge.until_ms)
            if len(q.dead) > _MOST_DEAD:
                del q.dead[next(iter(q.dead))]

    async def open(self, queue: str, members: Sequence[str]) -> list[bool]:
        """See PurgeOutbox."""
        return [member in self._queues[queue].age for member in members]

    async def lead(self, queue: str, *, token: str, lease_ms: int, now_ms: int) -> bool:
        """See PurgeOutbox. There is no other process."""
        return True

    async def resign(self, queue: str, *, token: str) -> None:
        """See PurgeOutbox."""

    async def size(self, queue: str) -> QueueSize:
        """See PurgeOutbox."""
        q = self._queues[queue]
        return QueueSize(
            len(q.waiting),
            sum(map(len, q.taken.values())),
            len(q.dead),
            min(q.age.values(), default=None),
            max((until_ms for _, until_ms in q.about.values()), default=None),
        )

    async def busiest(self, queue: str, *, now_ms: int) -> float:
        """See PurgeOutbox."""
        first = now_ms // 60_000 - 59
        return max((number for minute, number in self._queues[queue].put.items() if minute >= first), default=0) / 60

    async def note(self, name: str, text: str, *, for_ms: int) -> None:
        """See PurgeOutbox. There is no other process, so the note lasts as long as this one."""
        self._notes[name] = text

    async def noted(self, name: str) -> str | None:
        """See PurgeOutbox."""
        return self._notes.get(name)

    async def queues(self) -> list[str]:
        """See PurgeOutbox."""
        return sorted(self._queues)

    async def waiting(self, queue: str, *, count: int) -> list[QueuedPurge]:
        """See PurgeOutbox."""
        q = self._queues[queue]
        oldest = sorted(q.age.items(), key=lambda item: item[1])[:count]
        return [
            QueuedPurge(member, "", put_at_ms, q.about[member][1], q.about[member][0]) for member, put_at_ms in oldest
        ]

    async def dead(self, queue: str, *, count: int) -> list[DeadPurge]:
        """See PurgeOutbox."""
        return list(reversed(self._queues[queue].dead.values()))[:count]

    async def replay(self, queue: str, *, now_ms: int) -> int:
        """See PurgeOutbox."""
        q = self._queues[queue]
        dead, q.dead = q.dead, {}
        for purge in dead.values():
            q.waiting[purge.member] = min(now_ms, q.waiting.get(purge.member, now_ms))
            q.age.setdefault(purge.member, now_ms)
            q.about[purge.member] = (0, purge.until_ms)
        return len(dead)

    async def drop(self, queue: str) -> int:
        """See PurgeOutbox."""
        q = self._queues[queue]
        size = len(q.dead)
        q.dead = {}
        return size

    @staticmethod
    def _forget(q: _Queue, member: str) -> None:
        """Forget a purge, unless it waits anew or another sender has taken it too."""
        if member not in q.waiting and member not in q.taken:
            q.age.pop(member, None)
            q.about.pop(member, None)


def _over(q: _Queue, now_ms: int) -> list[tuple[str, str]]:
    """Return member and token of purges that were taken and not done in time."""
    return [(m, token) for m, held in q.taken.items() for token, until_ms in held.items() if until_ms <= now_ms]


def _let_go(q: _Queue, member: str, token: str) -> bool:
    """Release this token's hold of this member; return whether there was one."""
    held = q.taken.get(member, {})
    mine = held.pop(token, None) is not None
    if not held:
        q.taken.pop(member, None)
    return mine
