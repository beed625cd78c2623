"""Purges of a real varnishd from strangers are refused, and the adapter does not take a refusal for a purge."""

from __future__ import annotations

from functools import partial

import httpx
import pytest

from quaestor.cdn_adapters import VarnishAdapter, varnish_vcl
from quaestor.errors import CdnError
from quaestor.testing.servers import HOST, Server, running, varnish_server
from tests.end_to_end.origin import Origin
from tests.end_to_end.varnish_site import (
    TOKEN,
    adapter,
    behind,
    needs_varnish,
    path,
    seen,
    tagged,
    varnish,
    web,
)
from tests.support import PATIENCE_S

pytestmark = [pytest.mark.anyio, needs_varnish]
__all__ = ["adapter", "behind", "path", "varnish", "web"]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"xkey-purge": "t"},
        {"xkey-purge": "t", "quaestor-purge-token": "wrong-token"},
        {"xkey-purge": "t", "quaestor-purge-token": TOKEN.upper()},
    ],
    ids=str,
)
async def test_a_stranger_cannot_purge(
    behind: Origin, web: httpx.AsyncClient, path: str, headers: dict[str, str]
) -> None:
    behind.answers[path] = tagged("t")
    await web.get(path)
    answer = await web.request("PURGE", path, headers=headers)
    assert answer.status_code == 403
    assert "quaestor-purged" not in answer.headers
    assert seen(await web.get(path)) == "hit"


async def test_the_right_token_from_the_wrong_host_cannot_purge(behind: Origin) -> None:
    vcl = varnish_vcl(HOST, behind.port, purge_token=TOKEN, purgers=["192.0.2.0/24"])
    with running(partial(varnish_server, vcl=vcl), "varnish-elsewhere") as elsewhere:
        adapter = VarnishAdapter(elsewhere.url, token=TOKEN, timeout_s=PATIENCE_S)
        with pytest.raises(CdnError, match="refused") as refused:
            await adapter.purge(tags=["t"], urls=[])
        await adapter.aclose()
    assert not refused.value.retryable


async def test_the_token_is_not_passed_on(behind: Origin, web: httpx.AsyncClient, path: str) -> None:
    await web.get(path, headers={"quaestor-purge-token": TOKEN, "quaestor-cache": "hit", "quaestor-purged": "1"})
    assert not [name for name in behind.asked[-1].headers if name.lower().startswith("quaestor")]


async def test_without_the_token_the_adapter_says_what_to_do(varnish: Server) -> None:
    adapter = VarnishAdapter(varnish.url, timeout_s=PATIENCE_S)
    with pytest.raises(CdnError, match="token"):
        await adapter.purge(tags=["t"], urls=[])
    await adapter.aclose()


async def test_something_that_is_not_our_varnish_is_not_taken_for_a_purge(behind: Origin) -> None:
    """A server that answers 200 to a PURGE it does not understand would be silent staleness."""
    adapter = VarnishAdapter(f"http://{HOST}:{behind.port}", timeout_s=PATIENCE_S)
    with pytest.raises(CdnError, match="does not purge"):
        await adapter.purge(tags=["t"], urls=[])
    await adapter.aclose()


async def test_a_relative_url_is_refused(adapter: VarnishAdapter) -> None:
    for url in ("/relative", "http://host/é", "http://host/a b", "http://host/a\r\nx-evil: 1"):
        with pytest.raises(CdnError, match="cannot be purged"):
            await adapter.purge(tags=[], urls=[url])
    assert adapter.pending == 0
