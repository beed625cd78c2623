"""A real varnishd with the adapter's VCL before a real origin, for the tests of what it keeps and forgets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import partial

import httpx
import pytest

from quaestor.cdn_adapters import VarnishAdapter, varnish_vcl
from quaestor.testing.servers import HOST, Server, free_port, running, varnish_binary, varnish_server
from tests.end_to_end.origin import Answer, Origin, origin
from tests.support import PATIENCE_S

needs_varnish = pytest.mark.skipif(
    varnish_binary() is None, reason="no varnishd on this machine: apt-get install varnish varnish-modules"
)
TOKEN = "open-sesame-0123"
CACHED = {"cdn-cache-control": "max-age=600", "cache-control": "public, max-age=0, must-revalidate"}


@pytest.fixture(scope="module")
def behind() -> Iterator[Origin]:
    with origin(free_port()) as there:
        yield there


@pytest.fixture(scope="module")
def varnish(behind: Origin) -> Iterator[Server]:
    vcl = varnish_vcl(HOST, behind.port, purge_token=TOKEN)
    with running(partial(varnish_server, vcl=vcl), "varnish") as server:
        yield server


@pytest.fixture
async def web(varnish: Server) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=varnish.url, timeout=10, trust_env=False) as client:
        yield client


@pytest.fixture
async def adapter(varnish: Server) -> AsyncIterator[VarnishAdapter]:
    adapter = VarnishAdapter(varnish.url, token=TOKEN, timeout_s=PATIENCE_S)
    yield adapter
    await adapter.aclose()


@pytest.fixture
def path(prefix: str) -> str:
    """A path of this test's own."""
    return f"/{prefix}"


def seen(response: httpx.Response) -> str:
    return response.headers["x-varnish-cache"]


def tagged(*tags: str, **headers: str) -> Answer:
    fields = VarnishAdapter("http://unused").response_headers(tags)
    return Answer(CACHED | {name.decode(): value.decode() for name, value in fields} | headers)
