"""Port of the outbox, which keeps purges of CDNs until they are done.

One implementation is in memory, the other in Redis; one conformance suite runs both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

MOST_OPEN: Final = 500_000
"""Most open purges of a queue; further ones are refused, and tried again with their claim. In Redis about 150 MB."""


class QueuedPurge(NamedTuple):
    """Purge in an outbox.

    member: its phase, one digit, and its target, as the sender of its queue writes it. Equal members wait once at most.
    token: token of the sender that has taken it; empty while it waits.
    put_at_ms: time since which it is open.
    until_ms: time at which the last copy concerned is dead.
    attempts: number of failed attempts.
    """

    member: str
    token: str
    put_at_ms: int
    until_ms: int
    attempts: int


class DeadPurge(NamedTuple):
    """Purge that the CDN refuses for good.

    member: see QueuedPurge.
    """

    member: str
    reason: str
    at_ms: int
    until_ms: int


class QueueSize(NamedTuple):
    """Size of one queue of an outbox.

    waiting: number of purges to be taken, now or later.
    taken: number of purges that a sender has taken, and not acknowledged yet.
    dead: number of purges refused for good.
    oldest_ms: time since which the oldest open purge is open; None: there is none.
    until_ms: time at which the last copy concerned by an open purge is dead; None: not known.
    """

    waiting: int
    taken: int
    dead: int
    oldest_ms: int | None
    until_ms: int | None = None


class Bucket(NamedTuple):
    """Token bucket that a provider keeps for an account.

    name: equal names are one bucket, for all deployments and queues that pay from it.
    per_s: tokens that come back in a second.
    burst: tokens that it holds.
    """

    name: str
    per_s: float
    burst: float


class PurgeAccounts(Protocol):
    """Accounts at providers: limits and spending of all processes together. Every call is atomic. Raises StoreError."""

    async def spend(self, bucket: Bucket, *, tokens: float, payer: str, lease_ms: int, now_ms: int) -> int:
        """Pay for one request. Returns 0, or the ms to wait, and then nothing was paid. The bucket holds so much less until the
        request is settled, or its lease is over: it is not known when the provider counts it.

        payer: name of the payer, which has one request under way at a time.
        """

    async def settle(self, bucket: Bucket, *, payer: str, sent: bool = True, now_ms: int) -> None:
        """Note that this payer's request was answered, or that it was not sent and its tokens come back."""

    async def hold(self, bucket: Bucket, *, for_ms: int, now_ms: int) -> None:
        """Stop all spending for so long, because the provider reported that the bucket is empty."""

    async def charge(self, budget: str, *, number: int, most: int) -> bool:
        """Count paid purges. Returns False, and counts nothing, if there would be more than `most` in all.

        number: number of purges; a negative number takes purges back.
        """

    async def charged(self, budget: str) -> int:
        """Number of counted purges."""


class PurgeOutbox(Protocol):
    """Outbox of purges: a queue for each place that is purged. A purge is kept until it is done, refused or outlived, even if
    processes die. A purge that was taken and not done comes back when its lease is over. Every call is atomic, each target waits
    in a queue once. Raises StoreError.

    durable: whether the outbox outlives this process.
    accounts: accounts at the providers, of all processes that share the outbox.
    """

    durable: bool
    accounts: PurgeAccounts

    async def put(
        self, queue: str, members: Sequence[str], *, until_ms: int, now_ms: int, token: str = "", lease_ms: int = 0
    ) -> None:
        """Put purges in, to be taken at once; with a token, they count as taken by its sender."""

    async def take(self, queue: str, *, token: str, count: int, lease_ms: int, now_ms: int) -> list[QueuedPurge]:
        """Take the due purges, the oldest first, and purges that were taken and not done in time. A purge without a living copy
        is dropped."""

    async def done(
        self, queue: str, taken: Sequence[QueuedPurge], *, again: Sequence[tuple[str, int]] = (), now_ms: int
    ) -> None:
        """Remove these. Each purge of phase 0 comes again for every (phase, due_ms) in `again`; the latest one counts."""

    async def retry(
        self, queue: str, taken: Sequence[QueuedPurge], *, due_ms: int, failed: bool = True, now_ms: int
    ) -> None:
        """Put these back, to be taken at due_ms.

        failed: whether to count an attempt. Otherwise nothing was tried: the purges keep their place before later ones.
        """

    async def renew(self, queue: str, taken: Sequence[QueuedPurge], *, lease_ms: int, now_ms: int) -> None:
        """Prolong the lease of these."""

    async def bury(self, queue: str, taken: Sequence[QueuedPurge], *, reason: str, now_ms: int) -> None:
        """Make dead letters of these."""

    async def open(self, queue: str, members: Sequence[str]) -> list[bool]:
        """Whether each of these, of phase 0, still waits or is taken."""

    async def lead(self, queue: str, *, token: str, lease_ms: int, now_ms: int) -> bool:
        """Take or prolong the lease of the queue's only sender. Returns whether this sender has it."""

    async def resign(self, queue: str, *, token: str) -> None:
        """Give up the lease of the queue's sender."""

    async def size(self, queue: str) -> QueueSize:
        """Size of a queue."""

    async def busiest(self, queue: str, *, now_ms: int) -> float:
        """Purges put in per second, in the busiest minute of the last hour; purges that waited already are not counted again."""

    async def note(self, name: str, text: str, *, for_ms: int) -> None:
        """Store a note that all processes of the deployment can read under this name, for so long."""

    async def noted(self, name: str) -> str | None:
        """Note under this name; None: there is none."""

    async def queues(self) -> list[str]:
        """All queues that ever held a purge, sorted."""

    async def waiting(self, queue: str, *, count: int) -> list[QueuedPurge]:
        """Open purges, the oldest first."""

    async def dead(self, queue: str, *, count: int) -> list[DeadPurge]:
        """Dead letters, the latest first."""

    async def replay(self, queue: str, *, now_ms: int) -> int:
        """Put all dead letters back to be sent, and return their number."""

    async def drop(self, queue: str) -> int:
        """Remove all dead letters, and return their number."""
