"""Explicit entries, which only their own lifetime guards, and the outdating of entries by label, here and in other processes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

from quaestor.clock import Clock
from quaestor.errors import QuaestorError, StoreError
from quaestor.model import CachedResponse
from quaestor.observability.event_log import EventLog
from quaestor.policy import RoutePolicy
from quaestor.read_path import partial_answers, shared_cache_rules, unsafe_invalidation
from quaestor.read_path.entries import Answer
from quaestor.read_path.local_store import LocalStore
from quaestor.read_path.outdated_labels import OutdatedLabels, labels
from quaestor.read_path.reuse import windows
from quaestor.read_path.unsafe_invalidation import Outdated
from quaestor.store.memory import Resident

Announce = Callable[[Sequence[str]], Awaitable[None]]
"""Notifies every process, this one included, that registrations or labels are dead. May raise QuaestorError."""


class ExplicitEntries:
    """Keeps explicit entries and outdates entries by their labels; one per read path. Use from one event loop.

    announce: notifies the other processes; None if this process is alone.
    heuristic: see `shared_cache_rules.heuristic_lifetime_s`.
    partial_bytes: largest size of a partial entry; 0: there are none.
    """

    def __init__(
        self,
        store: LocalStore,
        *,
        telemetry: EventLog,
        clock: Clock,
        announce: Announce | None = None,
        heuristic: float = 0.0,
        partial_bytes: int = 0,
    ) -> None:
        self._store = store
        self._telemetry = telemetry
        self._clock = clock
        self._labels = OutdatedLabels()
        self._heuristic = heuristic
        self._partial_bytes = partial_bytes
        self.announce = announce

    async def keep(
        self,
        answer: Answer,
        *,
        key: str,
        resource: str,
        asked_ms: int,
        policy: RoutePolicy,
    ) -> Resident | None:
        """Store an answer that shared_cache_rules.refusal() allows. None: it was outdated meanwhile.

        key: of the partial entry, if the answer is a part.

        Raises StoreError.
        """
        now_ms = self._clock()
        response = shared_cache_rules.entry(
            answer,
            key=key, resource=resource, asked_ms=asked_ms, answered_ms=now_ms,
            at_most_ms=policy.ttl_ms, stale_ms=windows(answer.headers, policy).longest_ms, heuristic=self._heuristic,
        )  # fmt: skip
        if answer.part is not None:
            response = partial_answers.combined_in(self._store, response, answer.part, most_bytes=self._partial_bytes)
            key = response.key
        await self._store.put(response, ttl_ms=response.stale_until_ms - now_ms)
        if not self.accept(response):
            await self._store.evict([response])
            return None
        resident = self._store.resident(key)
        return resident if resident is not None and resident.response is response else Resident(response)

    def accept(self, response: CachedResponse, *, asked_ms: int | None = None) -> bool:
        """Note the labels of an entry that has come into memory. False: it is outdated and was dropped.

        asked_ms: when its handler began; None: when it was stored.
        """
        names = labels(response)
        since_ms = response.stored_at_ms if asked_ms is None else min(asked_ms, response.stored_at_ms)
        if self._labels.outdated(names, since_ms=since_ms):
            self._store.drop(response.key, "outdated")
            return False
        leaves = self._labels.remember(response, names)
        if leaves is not None:
            self._store.drop(leaves, "demand")
        return True

    async def outdate(self, what: Outdated, *, url_origin: str) -> None:
        """Outdate everything that an unsafe request made stale. After that, this process serves none of the earlier entries, and
        the other processes are notified."""
        names = [unsafe_invalidation.uri_label(key) for key in what.keys]
        names += [unsafe_invalidation.group_label(url_origin, group) for group in what.groups]
        registrations = self.outdate_here(names)
        for key in what.keys:
            await self._evict(key)
            if self._partial_bytes:
                await self._evict(partial_answers.key_of_parts(key))
        await self.tell([*names, *registrations])

    async def tell(self, names: Sequence[str]) -> None:
        """Notify other processes, and the effects of this one. A failure is counted; then only this process knows."""
        if self.announce is not None and names:
            try:
                await self.announce(names)
            except QuaestorError as error:
                self._telemetry.failure("event-layer", "read_path.outdating_not_told", error)

    async def outdate_everything(self) -> None:
        """Outdate every explicit entry, in all processes. Raises StoreError, QuaestorError."""
        self.outdate_here((unsafe_invalidation.EVERYTHING,))
        await self._store.clear()
        if self.announce is not None:
            await self.announce((unsafe_invalidation.EVERYTHING,))

    def outdate_here(self, names: Iterable[str]) -> list[str]:
        """Outdate the entries with these labels, in this process alone; names that are no labels are skipped.

        Returns the registrations that have to die with them.
        """
        keys, registrations = self._labels.outdate(filter(unsafe_invalidation.is_label, names), at_ms=self._clock())
        for key in keys:
            self._store.drop(key, "outdated")
        return registrations

    async def _evict(self, key: str) -> None:
        """Evict the entry without variants from the shared store."""
        try:
            response = await self._store.get(key)
            if response is not None and shared_cache_rules.is_explicit(response):
                await self._store.evict([response])
            elif response is not None:
                # Reading the entry has put it into memory, although this process may have missed its death.
                self._store.drop(key, "outdated")
        except StoreError as error:
            self._telemetry.failure("store", "read_path.evict_failed", error)
