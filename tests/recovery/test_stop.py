"""The stop of a Quaestor closes every part within a bound, also if parts raise."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from pymongo import AsyncMongoClient

from quaestor import Quaestor
from quaestor.errors import CdnError, ConfigurationError, EventLayerError
from quaestor.runtime import lifecycle
from tests.support import PATIENT, eventually

pytestmark = pytest.mark.anyio


class Cdn:
    """CDN whose closing behaves as configured."""

    def __init__(self, name: str, error: BaseException | None = None, *, hangs: bool = False) -> None:
        self.name = name
        self.closed = False
        self._error, self._hangs = error, hangs

    def response_headers(self, tags: Sequence[str]) -> list[tuple[bytes, bytes]]:
        return []

    async def purge(self, *, tags: Sequence[str], urls: Sequence[str]) -> None: ...

    async def aclose(self) -> None:
        self.closed = True
        if self._hangs:
            await asyncio.Event().wait()
        if self._error is not None:
            raise self._error


def quaestor_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("quaestor-")]


async def test_every_part_is_closed_also_if_others_raise(mongo_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CDN that raises, one that never ends and a registry that raises keep no later part open."""
    monkeypatch.setattr(lifecycle, "_STEP_S", 0.5)
    quaestor = Quaestor(**PATIENT)
    cdns = [Cdn("raises", CdnError("gone")), Cdn("hangs", hangs=True), Cdn("last")]
    for cdn in cdns:
        quaestor.add_cdn(cdn)
    seen: list[str] = []
    quaestor.on_failure(lambda failure: seen.append(f"{failure.name} {failure.fields.get('service')}"))
    stop = quaestor.registry.stop

    def stopped_badly() -> None:
        stop()
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(quaestor.registry, "stop", stopped_badly)
    async with AsyncMongoClient[dict[str, Any]](mongo_url, event_listeners=[quaestor.capture]):
        await quaestor.start()
        await eventually(lambda: quaestor.read_path.serving(quaestor.read_path.clock()))
        watched = quaestor._life._watched
        assert watched is not None
        await quaestor.stop()
    assert [cdn.closed for cdn in cdns] == [True, True, True]
    assert set(seen) == {
        f"quaestor.stop_failed {service}" for service in ("registering", "cdn raises", "cdn hangs")
    }  # and each once
    assert watched._closed
    with pytest.raises(EventLayerError):
        quaestor.parts.storage.layer.append("stream", [b"late"])
    assert quaestor_threads() == []
    assert {report.state.value for report in quaestor.services()} == {"ended"}


async def test_a_cancelled_stop_closes_everything_first(mongo_url: str) -> None:
    """A server that loses its patience cancels it; the next loop finds nothing open."""
    quaestor = Quaestor(**PATIENT)
    slow, last = Cdn("slow", hangs=True), Cdn("last")
    quaestor.add_cdn(slow)
    quaestor.add_cdn(last)
    async with AsyncMongoClient[dict[str, Any]](mongo_url, event_listeners=[quaestor.capture]):
        await quaestor.start()
        stopping = asyncio.create_task(quaestor.stop())
        await eventually(lambda: slow.closed)
        stopping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopping
    assert last.closed
    assert quaestor_threads() == []


async def test_a_start_that_raises_leaves_nothing_running(mongo_url: str) -> None:
    """The next start begins from nothing."""
    quaestor = Quaestor(cdn_addresses=["nobody=http://127.0.0.1:1/"], cdn_canary_ms=1_000, **PATIENT)
    async with AsyncMongoClient[dict[str, Any]](mongo_url, event_listeners=[quaestor.capture]):
        for _ in range(2):
            with pytest.raises(ConfigurationError, match="which is no CDN here"):
                await quaestor.start()
            assert quaestor_threads() == []
            assert [task for task in asyncio.all_tasks() if task.get_name().startswith("quaestor-")] == []
