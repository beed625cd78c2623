"""Queue of one place in the outbox, as one process uses it: purges are put in, taken, put back, buried and acknowledged."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from quaestor.cdn_adapters.own_purges import OwnPurges
from quaestor.cdn_adapters.place import Place
from quaestor.cdn_adapters.purge_waits import PurgeWaits
from quaestor.cdn_adapters.sender_options import LEAD_MS, SenderOptions
from quaestor.clock import Clock
from quaestor.purge_ports import PurgeOutbox, QueuedPurge


class PlaceQueue:
    """Queue of one place. Use from one event loop. Every method that reaches the outbox raises StoreError.

    name: of the queue in the outbox.
    process: name of this process among the senders of the queue.
    own: purges that this process has put in and sends at once.
    waits: of callers for their purges.
    taken: purges that this process has taken, and that are not done.
    """

    def __init__(self, place: Place, outbox: PurgeOutbox, options: SenderOptions, clock: Clock) -> None:
        self.place = place
        self.outbox = outbox
        self.options = options
        self.clock = clock
        self.name = f"{place.name} {place.address}"
        self.process = secrets.token_hex(6)
        self.own = OwnPurges(outbox, self.name, token=self._token, lease_ms=options.lease_ms)
        self.waits = PurgeWaits()
        self.taken: set[QueuedPurge] = set()
        self._tokens = 0
        self._led_until_ms = 0

    @property
    def limited(self) -> bool:
        """Whether the place has rates, so that one process at a time sends."""
        return bool(self.place.capabilities.rates)

    async def take(self, count: int) -> list[QueuedPurge]:
        """Take at most this many due purges."""
        return await self.outbox.take(
            self.name, token=self._token(), count=count, lease_ms=self.options.lease_ms, now_ms=self.clock()
        )

    async def release(self, held: Sequence[QueuedPurge]) -> None:
        """Put these purges back, untried."""
        if held:
            await self.own.recorded(held)
            now_ms = self.clock()
            await self.outbox.retry(self.name, held, due_ms=now_ms, failed=False, now_ms=now_ms)

    async def retry(self, held: Sequence[QueuedPurge], *, after_s: float) -> None:
        """Put these purges back after a failure, due again after this pause."""
        now_ms = self.clock()
        await self.outbox.retry(self.name, held, due_ms=now_ms + int(after_s * 1_000), now_ms=now_ms)

    async def renew(self, held: Sequence[QueuedPurge], *, further_s: float) -> None:
        """Renew the lease of these purges, and add this time to it."""
        lease_ms = self.options.lease_ms + int(further_s * 1_000)
        await self.outbox.renew(self.name, held, lease_ms=lease_ms, now_ms=self.clock())

    async def bury(self, held: Sequence[QueuedPurge], *, reason: str) -> None:
        """Make these purges dead letters."""
        await self.outbox.bury(self.name, held, reason=reason, now_ms=self.clock())

    async def lead(self) -> bool:
        """Return whether this process is the sender of the queue now. The lead is renewed when half of it is over."""
        now_ms = self.clock()
        if now_ms < self._led_until_ms - LEAD_MS // 2:
            return True
        if not await self.outbox.lead(self.name, token=self.process, lease_ms=LEAD_MS, now_ms=now_ms):
            self._led_until_ms = 0
            return False
        self._led_until_ms = now_ms + LEAD_MS
        return True

    async def resign(self) -> None:
        """Give up the lead, so that no other process has to wait for its end."""
        if self.clock() < self._led_until_ms:
            await self.outbox.resign(self.name, token=self.process)

    def _token(self) -> str:
        self._tokens += 1
        return f"{self.process}.{self._tokens}"
