"""Live registrations of a node by id, with the ends of their leases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from quaestor.invalidation.matching.entities import LiveRegistration
from quaestor.invalidation.matching.leases import Leases

_SPARE_LEASES: Final = 1_000
"""Leases of ended registrations that may be kept, beside twice the number of live ones."""


class LiveRegistrations(dict[str, LiveRegistration]):
    """Live registrations by id. A registration that ends is deleted; its lease is dropped later, in passing."""

    __slots__ = ("leases",)

    def __init__(self) -> None:
        super().__init__()
        self.leases = Leases()

    def add(self, live: LiveRegistration) -> None:
        """Keep a registration until it is deleted, and the end of its lease."""
        self[live.id] = live
        self.leases.add(live.id, live.expires_at_ms)

    def over(self, now_ms: int) -> Iterator[LiveRegistration]:
        """Yield the registrations whose lease ended, up to a second late. Each may be deleted before the next is taken."""
        for registration_id in self.leases.over(now_ms):
            live = self.get(registration_id)
            if live is not None and live.expires_at_ms <= now_ms:
                yield live

    def compact_leases(self) -> None:
        """Drop the leases of ended registrations if there are many. Call it every second."""
        self.leases.compact(lambda registration_id, _: registration_id in self, most=2 * len(self) + _SPARE_LEASES)
