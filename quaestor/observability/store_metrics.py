"""Metrics of the stores: entries, bytes, and false evictions."""

from __future__ import annotations

from quaestor.model import CachedResponse
from quaestor.observability import vocabularies
from quaestor.observability.families import Families
from quaestor.observability.removals import Removals


class StoreMetrics:
    """Entries of the stores, and their removals. Event loop only.

    removals: latest removals from this process's memory, with reasons.
    evictions: by that reason.
    refused: by store and reason.
    stored_bytes: by form.
    entries, bytes: by store.
    shared_bytes: bytes of the entries in the shared store, and their budget.
    shared_evictions: entries that left it for others.
    reexecuted: answers made anew after an invalidation, compared with the old ones.
    store_s: time to report an entry to index and sketch, and to store it.
    """

    def __init__(self, families: Families) -> None:
        self.removals = Removals()
        self.evictions = families.counters(
            "evictions", "entries that left this process's memory", reason=vocabularies.LEFT
        )
        self.refused = families.counters(
            "refused", "entries that a store refused", level=vocabularies.LEVELS, reason=vocabularies.REFUSED
        )
        self.stored_bytes = families.counters(
            "stored_bytes", "entries put into the shared store", form=frozenset({"plain", "sent"})
        )
        self.entries = families.gauges("store_entries", "entries held", level=vocabularies.LEVELS)
        self.bytes = families.gauges("store_bytes", "bytes held", level=vocabularies.LEVELS)
        self.shared_bytes = families.gauges(
            "shared_entries_bytes", "bytes of the entries in the shared store", of=vocabularies.BUDGET
        )
        self.shared_evictions = families.counter(
            "shared_evictions", "entries that left the shared store for others of more benefit"
        )
        self.reexecuted = families.counters(
            "reexecuted", "answers made anew after an invalidation, compared with the old ones",
            precision=vocabularies.PRECISION, answer=vocabularies.ANSWERS,
        )  # fmt: skip
        self.store_s = families.histogram("store_seconds", "an entry's way into index, sketch and stores")

    def left(self, response: CachedResponse, why: str) -> None:
        """Note that an entry has left this process's memory.

        why: one of vocabularies.LEFT.
        """
        self.evictions.labels(why).inc()
        self.removals.left(response, why)

    def kept(self, response: CachedResponse) -> None:
        """Note that an answer has become an entry."""
        compared = self.removals.returned(response)
        if compared is not None:
            precision, same = compared
            self.reexecuted.labels(precision, "same" if same else "changed").inc()
