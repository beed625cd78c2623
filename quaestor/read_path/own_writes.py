"""Barrier for requests that wrote, where it is unknown when writes have taken effect."""

from __future__ import annotations

from quaestor.model import Version


class NoBarrier:
    """Implements ports.OwnWritesBarrier: always passed."""

    def expect(self) -> None:
        """See ports.OwnWritesBarrier."""

    async def passed(self, version: Version) -> None:
        """See ports.OwnWritesBarrier."""
