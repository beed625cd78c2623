"""Port of the outbox, which keeps purges of CDNs until they are done.

One implementation is in memory, the other in Redis; one conformance suite runs both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

MOST_OPEN: Final = 500_000
"""Open purges of a queue; more are refused, and tried again with their claim. In Redis about 150 MB."""


class QueuedPurge(NamedTuple):
    """Purge in an outbox.

    member: its phase, one digit, and its target, as the sender of its queue spells it. One of each waits at most.
    token: of who has taken it; empty while it waits.
    put_at_ms: since when it is open.
    until_ms: no copy that it is about is alive after that.
    attempts: that failed.
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

    waiting: to be taken, now or later.
    taken: by a sender, and not acknowledged yet.
    dead: refused for good.
    oldest_ms: since when the oldest open one is; None: there is none.
    until_ms: no copy that an open one is about is alive after that; None: not known.
    """

    waiting: int
    taken: int
    dead: int
    oldest_ms: int | None
    until_ms: int | None = None


class Bucket(NamedTuple):
    """Token bucket that a provider keeps for an account.

    name: equal names are one bucket, whatever deployments and queues pay out of it.
    per_s: tokens that come back in a second.
    burst: tokens that it holds.
    """

    name: str
    per_s: float
    burst: float


class PurgeAccounts(Protocol):
    """Accounts at providers: what all processes together may send, and what they have spent. Every call is atomic. Raises
    StoreError.
    """

    async def spend(self, bucket: Bucket, *, tokens: float, payer: str, lease_ms: int, now_ms: int) -> int:
        """Pay for one request: 0, or how many ms to wait, and nothing was paid. Until that is settled, or its lease over, the
        bucket holds so much less, because nobody knows when the provider counts it.

        payer: has one request under way at a time.
        """

    async def settle(self, bucket: Bucket, *, payer: str, sent: bool = True, now_ms: int) -> None:
        """Note that this payer's request was answered; or that it was not sent, and its tokens come back."""

    async def hold(self, bucket: Bucket, *, for_ms: int, now_ms: int) -> None:
        """Keep everybody from spending for so long, because the provider said so: it is empty."""

    async def charge(self, budget: str, *, number: int, most: int) -> bool:
        """Count so many paid purges; False: they would be more than that in all, and nothing was counted.

        number: below 0: so many are taken back.
        """

    async def charged(self, budget: str) -> int:
        """Number of the counted purges."""


class PurgeOutbox(Protocol):
    """Outbox of purges: a queue for each place that is purged. A purge is kept until it is done, refused or outlived, whichever
    process dies. A purge that was taken and not done comes back when its lease is over. Every call is atomic, each target waits
    in a queue once. Raises StoreError.

    durable: whether it outlives this process.
    accounts: at the providers, of all who share it.
    """

    durable: bool
    accounts: PurgeAccounts

    async def put(
        self, queue: str, members: Sequence[str], *, until_ms: int, now_ms: int, token: str = "", lease_ms: int = 0
    ) -> None:
        """Put purges in, to be taken at once; or, with a token, as taken by it."""

    async def take(self, queue: str, *, token: str, count: int, lease_ms: int, now_ms: int) -> list[QueuedPurge]:
        """Take the due purges, the oldest first, and purges that were taken and not done in time. A purge without a living copy
        is dropped."""

    async def done(
        self, queue: str, taken: Sequence[QueuedPurge], *, again: Sequence[tuple[str, int]] = (), now_ms: int
    ) -> None:
        """Forget these. Each that is of phase 0 comes again for every (phase, due_ms) in `again`; the latest one counts."""

    async def retry(
        self, queue: str, taken: Sequence[QueuedPurge], *, due_ms: int, failed: bool = True, now_ms: int
    ) -> None:
        """Put these back, to be taken at due_ms.

        failed: count an attempt. Otherwise nothing was tried: they keep their place before what came later.
        """

    async def renew(self, queue: str, taken: Sequence[QueuedPurge], *, lease_ms: int, now_ms: int) -> None:
        """Prolong the lease of these."""

    async def bury(self, queue: str, taken: Sequence[QueuedPurge], *, reason: str, now_ms: int) -> None:
        """Make dead letters of these."""

    async def open(self, queue: str, members: Sequence[str]) -> list[bool]:
        """Whether each of these, of phase 0, still waits or is taken."""

    async def lead(self, queue: str, *, token: str, lease_ms: int, now_ms: int) -> bool:
        """Take or prolong the lease of the queue's only sender; whether it is this one's."""

    async def resign(self, queue: str, *, token: str) -> None:
        """Give that lease up."""

    async def size(self, queue: str) -> QueueSize:
        """Size of a queue."""

    async def busiest(self, queue: str, *, now_ms: int) -> float:
        """Purges a second that were put in, in the busiest minute of the last hour; what waited already is not counted again."""

    async def note(self, name: str, text: str, *, for_ms: int) -> None:
        """Let all processes of the deployment read this under this name, for so long."""

    async def noted(self, name: str) -> str | None:
        """The note under this name; None: there is none."""

    async def queues(self) -> list[str]:
        """All queues that anything was ever put in, sorted."""

    async def waiting(self, queue: str, *, count: int) -> list[QueuedPurge]:
        """Open purges, the oldest first."""

    async def dead(self, queue: str, *, count: int) -> list[DeadPurge]:
        """Dead letters, the latest first."""

    async def replay(self, queue: str, *, now_ms: int) -> int:
        """Put all dead letters back to be sent; how many."""

    async def drop(self, queue: str) -> int:
        """Forget all dead letters; how many."""
