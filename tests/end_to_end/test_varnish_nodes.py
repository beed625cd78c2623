"""Nodes that are away, deaf or one of several: the purge fails aloud, is kept, and arrives by itself."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from functools import partial

import httpx
import pytest

from benchmarks.setups.faults.proxy import Links
from quaestor.cdn_adapters import VarnishAdapter, varnish_vcl
from quaestor.cdn_adapters.batching import BatchLimits, Outcome, PurgeEvent
from quaestor.errors import CdnError
from quaestor.testing.servers import HOST, Server, running, varnish_server
from tests.end_to_end.origin import Origin
from tests.end_to_end.varnish_site import TOKEN, behind, needs_varnish, path, seen, tagged, varnish, web
from tests.support import PATIENCE_S, eventually

pytestmark = [pytest.mark.anyio, needs_varnish]
__all__ = ["behind", "path", "varnish", "web"]


async def test_a_varnish_that_was_away_is_purged_when_it_comes_back(behind: Origin, path: str, links: Links) -> None:
    """The purge fails aloud, is kept, and arrives by itself; nothing has to be asked again."""
    events: list[PurgeEvent] = []
    purged = asyncio.Event()

    def observe(event: PurgeEvent) -> None:
        events.append(event)
        if event.outcome is Outcome.PURGED:
            purged.set()

    behind.answers[path] = tagged(f"{path}-t")
    vcl = varnish_vcl(HOST, behind.port, purge_token=TOKEN)
    with running(partial(varnish_server, vcl=vcl), "varnish-away") as server:
        async with httpx.AsyncClient(base_url=server.url, trust_env=False) as web:
            await web.get(path)
            link = links.to(server.port)
            link.reset()  # away, without losing what it keeps
            adapter = VarnishAdapter(
                f"http://{HOST}:{link.port}", token=TOKEN, timeout_s=PATIENCE_S, observe=observe,
                limits=BatchLimits(last_retry_ms=100),
            )  # fmt: skip
            with pytest.raises(CdnError, match="did not answer"):
                await adapter.purge(tags=[f"{path}-t"], urls=[])
            assert adapter.pending == 1
            assert seen(await web.get(path)) == "hit"
            link.pass_()
            async with asyncio.timeout(20):
                await purged.wait()
            assert seen(await web.get(path)) == "miss"
            assert adapter.pending == 0
            await adapter.purge(tags=[f"{path}-t"], urls=[])
            await adapter.aclose()
    assert events[0].outcome is Outcome.FAILED
    assert events[-1].outcome is Outcome.PURGED


async def test_every_node_is_purged_although_one_is_down(
    behind: Origin, web: httpx.AsyncClient, varnish: Server, path: str
) -> None:
    vcl = varnish_vcl(HOST, behind.port, purge_token=TOKEN)
    behind.answers[path] = tagged(f"{path}-t")
    with running(partial(varnish_server, vcl=vcl), "varnish-second") as second:
        adapter = VarnishAdapter(
            [varnish.url, second.url], token=TOKEN, timeout_s=PATIENCE_S, limits=BatchLimits(last_retry_ms=100)
        )
        async with httpx.AsyncClient(base_url=second.url, trust_env=False) as other:
            await web.get(path)
            await other.get(path)
            await adapter.purge(tags=[f"{path}-t"], urls=[])
            assert (seen(await web.get(path)), seen(await other.get(path))) == ("miss", "miss")
        second.stop()
        with pytest.raises(CdnError, match=second.url):
            await adapter.purge(tags=[f"{path}-t"], urls=[])
        assert seen(await web.get(path)) == "miss"
        second.start()

        async def acknowledged() -> bool:
            """A retry that began before it was up may fail yet."""
            with suppress(CdnError):
                await adapter.purge(tags=[f"{path}-t"], urls=[])
            return adapter.pending == 0

        await eventually(acknowledged)
        await adapter.aclose()


async def test_a_varnish_that_does_not_answer_is_an_error_in_time() -> None:
    """Accepts the connection and says nothing: the purge fails after its own timeout, not never."""
    with socket.create_server((HOST, 0)) as deaf:
        adapter = VarnishAdapter(f"http://{HOST}:{deaf.getsockname()[1]}", timeout_s=0.1)
        with pytest.raises(CdnError, match="did not answer"):
            await adapter.purge(tags=["t"], urls=[])
        await adapter.aclose()
