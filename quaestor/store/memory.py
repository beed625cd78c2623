"""Response store in this process's memory, within a byte budget; the entries most in demand stay (`admission`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

from quaestor.model import CachedResponse
from quaestor.ports import Guarded
from quaestor.store.by_registration import ByRegistration
from quaestor.store.memory_admission import MemoryAdmission

_ENTRY_OVERHEAD_BYTES = 1500
"""Bytes of objects around one entry: response, header tuples, rendered headers, dictionary slots (measured, rounded up)."""
_REPORTED = 8
"""Entries whose hits are reported to the admission policy with each stored entry: all entries often before its counters age."""
_MAX_HITS = 4
"""Largest number of reported hits of an entry at a time: the policy's counters are relative and end at 15."""


class Resident:
    """Response in memory, with data derived from it that live as long.

    rendered: belongs to the sender of the response; not used here.
    usefulness: counter for its first use; belongs to the read path.
    explain: the response's dependencies, for people; known only in the process that stored it.
    urls: absolute URLs that the dependency index holds for this response.
    hits: number of hits since the last report to the admission policy.
    reads: number of hits since the last usage report; belongs to the read path.
    refresh_at_ms: time from which a request begins to renew it; belongs to the read path.
    copies_from_ms, copies_until_ms: the lifetime given to the last copies outside; belongs to the read path.
    reported_until_ms: end of the lifetime last reported to the Cache Sketch; 0: none was reported. Belongs to the read path.
    settled_until_ms: before this time a hit checks only the registrations; belongs to the read path.
    size_bytes: its part of the store's budget.
    """

    __slots__ = (
        "copies_from_ms", "copies_until_ms", "explain", "hits", "reads", "refresh_at_ms", "rendered",
        "reported_until_ms", "response", "settled_until_ms", "size_bytes", "urls", "usefulness",
    )  # fmt: skip

    def __init__(self, response: CachedResponse) -> None:
        self.response = response
        self.refresh_at_ms = response.fresh_until_ms
        self.copies_from_ms = response.stored_at_ms
        self.copies_until_ms = told_until_ms(response, response.stored_at_ms, first_copies_until_ms(response))
        self.reported_until_ms = response.copies_until_ms
        self.settled_until_ms = min(self.refresh_at_ms, self.copies_until_ms)
        self.size_bytes = 0
        self.rendered: Any = None
        self.usefulness: Any = None
        self.explain = ""
        self.urls: tuple[str, ...] = ()
        self.hits = 0
        self.reads = 0

    def note_urls(self, urls: tuple[str, ...]) -> None:
        """Note further URLs that the dependency index holds for the response. There are few."""
        self.urls = (*self.urls, *(url for url in urls if url not in self.urls)) if self.urls else urls

    def refresh_from(self, at_ms: int) -> None:
        """Let a request from then on renew the entry."""
        self.refresh_at_ms = at_ms
        self.settled_until_ms = min(at_ms, self.copies_until_ms)

    def renew_copies(self, from_ms: int, until_ms: int, *, reported: bool = False) -> None:
        """Give copies outside another lifetime; the rendered fields contain the last one, so they are dropped.

        reported: the Cache Sketch knows the lifetime.
        """
        self.copies_from_ms, self.copies_until_ms = from_ms, told_until_ms(self.response, from_ms, until_ms)
        self.rendered = None
        self.reported_until_ms = until_ms if reported else 0
        self.settled_until_ms = min(self.refresh_at_ms, self.copies_until_ms)


def first_copies_until_ms(response: CachedResponse) -> int:
    """Return the end of the lifetime of copies made while an entry is new, in ms."""
    return response.copies_until_ms or response.fresh_until_ms


def told_until_ms(response: CachedResponse, from_ms: int, until_ms: int) -> int:
    """Return the end of a lifetime of copies in whole seconds, the form in which header fields carry it; in ms.

    No client outside learns the rest of a second. If copies were due only after it, each request would come here meanwhile,
    and no client could keep its answer. A lifetime below a second, or up to the end of the entry, stays as it is: none
    follows it.
    """
    lives_ms = until_ms - from_ms
    return until_ms if lives_ms < 1000 or until_ms >= response.fresh_until_ms else until_ms - lives_ms % 1000


def size_bytes(response: CachedResponse) -> int:
    """Return the estimated memory of an entry. Header fields count twice, because they are kept rendered as well."""
    size = _ENTRY_OVERHEAD_BYTES + len(response.body) + len(response.key) + len(response.resource)
    size += 2 * (sum(map(len, chain.from_iterable(response.headers))) + 160 * len(response.headers))
    return size + sum(map(len, response.registrations + response.tags))


def _unnoticed(*_: object) -> None: ...


class MemoryStore:
    """Response store in memory, with resident() for the hit path. Implements ResponseStore. Use from one event loop. O(1) a key.

    budget_bytes: of all entries together, as size_bytes() counts them.
    on_left: called for every entry that leaves without a successor, with the reason (vocabularies.LEFT).
    on_refused: called for every refused entry, with the reason (vocabularies.REFUSED).
    """

    def __init__(
        self,
        *,
        budget_bytes: int,
        on_left: Callable[[CachedResponse, str], None] = _unnoticed,
        on_refused: Callable[[str], None] = _unnoticed,
    ) -> None:
        self._on_left = on_left
        self._on_refused = on_refused
        self._budget_bytes = budget_bytes
        self._entries: dict[str, Resident] = {}
        self._guarded: ByRegistration[str] = ByRegistration()
        self._admission = MemoryAdmission(budget_bytes=budget_bytes)
        self._unreported: Iterator[str] = iter(())
        self.used_bytes = 0

    def resident(self, key: str) -> Resident | None:
        """Return the entry, marked as used; the caller decides whether it may be served.

        Hits are only counted here. The admission policy receives them when an entry is stored.
        """
        entry = self._entries.get(key)
        if entry is not None:
            entry.hits += 1
        return entry

    def keep(self, response: CachedResponse) -> Resident:
        """Store a response, unless it exceeds the budget or is less in demand than the entries that would have to leave."""
        key = response.key
        entry = Resident(response)
        entry.size_bytes = size_bytes(response)
        if key in self._entries:
            self._admission.remove(key)
            self._forget(key)
        if entry.size_bytes > self._budget_bytes:
            self._on_refused("too-large")
        else:
            self._entries[key] = entry
            for registration_id in response.registrations:
                self._guarded.add(registration_id, key)
            self.used_bytes += entry.size_bytes
            self._report_hits()
            for left in self._admission.admit(key, entry.size_bytes):
                if left == key:
                    self._forget(key)
                    self._on_refused("demand")
                else:
                    self._forget(left, "demand")
        return entry

    def adopt(self, resident: Resident) -> bool:
        """Put an entry made before in the place of the entry that was kept of the same response. False: there is none."""
        key = resident.response.key
        kept = self._entries.get(key)
        if kept is None or kept.response is not resident.response:
            return False
        resident.size_bytes = kept.size_bytes
        self._entries[key] = resident
        return True

    def _report_hits(self) -> None:
        """Report the hits of the next few entries, in turn, to the admission policy."""
        keys = list(islice(self._unreported, _REPORTED))
        for key in keys:
            if key in self._entries and (entry := self._entries[key]).hits:
                for _ in range(min(entry.hits, _MAX_HITS)):
                    self._admission.touch(key)
                entry.hits = 0
        if len(keys) < _REPORTED:
            self._unreported = iter(list(self._entries))

    def drop(self, key: str, why: str = "invalidated") -> None:
        """Forget an entry, if there is one.

        why: one of vocabularies.LEFT.
        """
        if key in self._entries:
            self._admission.remove(key)
            self._forget(key, why)

    def _forget(self, key: str, why: str = "") -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            if why:
                self._on_left(entry.response, why)
            self.used_bytes -= entry.size_bytes
            for registration_id in entry.response.registrations:
                self._guarded.remove(registration_id, key)

    def used(self, key: str, hits: int) -> None:
        """Do nothing: hits in memory are counted at the look-up."""

    def drop_guarded(self, registration_ids: Sequence[str]) -> list[CachedResponse]:
        """Forget every entry that one of these registrations guarded, of any process; return the forgotten entries.

        The registrations are dead, and their tombstones will not last for ever.
        """
        dropped = []
        for registration_id in registration_ids:
            for key in self._guarded.pop(registration_id):
                entry = self._entries.get(key)
                if entry is not None:  # an error may have interrupted the drop that removed the entry
                    dropped.append(entry.response)
                    self.drop(key)
        return dropped

    def drop_all(self) -> None:
        """Forget every entry, popularity included."""
        for entry in self._entries.values():
            self._on_left(entry.response, "cleared")
        self._entries.clear()
        self._guarded.clear()
        self._admission.clear()
        self.used_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    async def get(self, key: str) -> CachedResponse | None:
        """See ResponseStore."""
        entry = self.resident(key)
        return None if entry is None else entry.response

    async def put(self, response: CachedResponse, *, ttl_ms: int) -> None:
        """See ResponseStore. An expired entry is refused at its look-up, and leaves when others need its place.

        ttl_ms: not used.
        """
        self.keep(response)

    async def evict(self, dead: Sequence[Guarded]) -> None:
        """See ResponseStore."""
        for dead_entry in dead:
            entry = self._entries.get(dead_entry.key)
            if entry is not None and entry.response.registrations == dead_entry.registrations:
                self.drop(dead_entry.key)

    async def clear(self) -> None:
        """See ResponseStore."""
        self.drop_all()
