"""A write between an answer and its verification. The test decides when the grid's notification arrives."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.end_to_end.site import Site, status_of
from tests.hand_driven import START_MS, HandRegistry
from tests.support import eventually

pytestmark = pytest.mark.anyio

READ_AT = 7
"""The version of everything that a page here reads; see `hand_driven.reads`."""


class ProvingRegistry(HandRegistry):
    """A registry that proves what it guards up to a moment only."""

    proved_until_ms = START_MS + 2_000  # the staleness bound: nothing is proved of what is still to come

    def live(self, registration_ids: Sequence[str], *, now_ms: int) -> bool:
        return super().live(registration_ids, now_ms=now_ms) and now_ms <= self.proved_until_ms


def verified(site: Site, verdict: str) -> float:
    return site.engine.count("verifications", verdict=verdict)


async def changed_meanwhile(registry: HandRegistry) -> Site:
    """A site whose stored page has been made again, and differs."""
    site = Site(verification=True, registry=registry)
    assert "stored" in status_of(await site.get())
    site.version = 2
    await eventually(lambda: site.runs == 2)
    return site


async def test_a_difference_is_excused_when_the_notification_comes_after_the_comparison() -> None:
    """The grid has not got as far as the second answer: nothing is said before it has, and then the registration is dead."""
    site = await changed_meanwhile(registry := HandRegistry())
    assert registry.newest < READ_AT
    assert not any(verified(site, verdict) for verdict in ("same", "excused", "diverged", "failed"))
    registry.kill()
    await eventually(lambda: verified(site, "excused") == 1)
    assert site.engine.read_path.probation.quarantines == []


async def test_the_database_s_time_alone_proves_nothing() -> None:
    """One cell has reported a newer version; the cell that guards the entry has not reported that version yet."""
    registry = ProvingRegistry()
    registry.newest = READ_AT
    site = await changed_meanwhile(registry)
    registry.kill()
    await eventually(lambda: verified(site, "excused") == 1)
    assert site.engine.read_path.probation.quarantines == []


async def test_a_difference_that_outlives_the_proof_is_a_divergence() -> None:
    registry = ProvingRegistry()
    registry.newest = READ_AT
    site = await changed_meanwhile(registry)
    assert verified(site, "diverged") == 0
    registry.proved_until_ms += 60_000
    await eventually(lambda: verified(site, "diverged") == 1)
    assert status_of(await site.get()) == "Quaestor; fwd=bypass; detail=diverged"


async def test_definitions_are_looked_up_before_a_difference_is_held_against_a_route() -> None:
    """A view that was defined anew ends the entry, as the catalog tells the grid; nothing is wrong with the handler."""
    registry = ProvingRegistry()
    registry.newest = READ_AT
    registry.proved_until_ms += 60_000
    site = Site(verification=True, registry=registry)

    async def look_up() -> None:
        registry.kill()

    site.engine.read_path.definitions = look_up
    assert "stored" in status_of(await site.get())
    site.version = 2
    await eventually(lambda: verified(site, "excused") == 1)
    assert verified(site, "diverged") == 0
    assert site.engine.read_path.probation.quarantines == []


async def test_a_difference_not_proved_in_time_is_excused() -> None:
    """A grid that stands still is no reason to give up a route."""
    site = await changed_meanwhile(HandRegistry())
    await eventually(lambda: verified(site, "excused") == 1)
    assert site.engine.read_path.probation.quarantines == []
