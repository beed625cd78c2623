"""Polling of definitions: a changed view or collection is noticed at the second poll within the staleness bound at the latest."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from quaestor import Quaestor
from quaestor.capture.catalog import POLL_MS, Catalog
from quaestor.runtime import services

pytestmark = pytest.mark.anyio


class NeverPolled(Catalog):
    """Catalog that notes the pause between its polls, and sends nothing."""

    pauses_ms: list[int]

    def __init__(self, client: Any, *, poll_ms: int = POLL_MS, **rest: Any) -> None:
        super().__init__(client, poll_ms=poll_ms, **rest)
        self.pauses_ms.append(poll_ms)

    async def run(self, *_: Any) -> None:
        await asyncio.Event().wait()


@pytest.mark.parametrize(("bound_ms", "pause_ms"), [(1_000, 500), (2_000, 1_000), (60_000, POLL_MS)])
async def test_definitions_are_polled_twice_within_the_staleness_bound(
    bound_ms: int, pause_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long bound makes no longer pauses."""
    monkeypatch.setattr(NeverPolled, "pauses_ms", [], raising=False)
    monkeypatch.setattr(services, "Catalog", NeverPolled)
    parts = Quaestor(staleness_bound_ms=bound_ms).parts
    client: Any = None
    end = await services.catalog_polling(parts, client)
    try:
        assert NeverPolled.pauses_ms == [pause_ms]
    finally:
        await end()
