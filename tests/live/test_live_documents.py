"""Documents about live answers and queries: the table of events, and the configuration of nginx, are tried as printed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from quaestor import cached
from quaestor.testing.servers import running
from tests.doctor.called import doctor
from tests.doctor.nginx import needs_nginx, nginx_server_of
from tests.live.semantics import FIRST, LAST_STEPS, STEPS, SUBSCRIPTION
from tests.live.socket_site import Json, Site, client_of, live_site

pytestmark = pytest.mark.anyio
DOCS = Path(__file__).parents[2] / "docs"
FIELDS = {"matchType", "operation", "data", "index", "previousIndex"}


@pytest.fixture(scope="module")
def site(mongo_url: str) -> Iterator[Site]:
    with live_site(mongo_url, "live_documents") as running_site:
        yield running_site


async def test_each_write_of_the_document_causes_its_events(site: Site, items: Any) -> None:
    """The whole table of docs/live_semantics.md, from first to last."""
    assert len(STEPS) == 9
    items.insert_one(FIRST)
    async with client_of(site) as client, client_of(site) as marks:
        await client.say(**SUBSCRIPTION)
        result = await client.hear()
        assert result["data"] == [FIRST]
        await marks.subscribe(query={"_id": "mark"})
        for step in STEPS + LAST_STEPS:
            expected = step.perform(items)
            heard = [await client.hear() for _ in expected]
            assert [{name: message[name] for name in message.keys() & FIELDS} for message in heard] == expected, step
            if not expected:  # a later write that is seen by another subscription has no event here either
                items.insert_one({"_id": "mark"})
                assert (await marks.hear())["matchType"] == "add"
                items.delete_one({"_id": "mark"})
                assert (await marks.hear())["matchType"] == "remove"


@needs_nginx
def test_the_printed_nginx_passes_streams_and_sockets(mongo_url: str, prefix: str) -> None:
    """`quaestor doctor` finds nothing to mend behind the configuration of docs/live.md."""
    text = (DOCS / "live.md").read_text()
    block = re.search(r"```text\n(location.*?)```", text, re.DOTALL)
    assert block is not None
    with live_site(mongo_url, prefix, settings={"live_heartbeat_ms": 300}) as site:

        @site.app.get("/shelves/{shelf}")
        @cached(live=True, ttl=60)
        async def shelf(shelf: int) -> Json:
            return {"shelf": shelf}

        locations = block[1].replace("http://127.0.0.1:8000", site.http)
        with running(partial(nginx_server_of, locations=locations), "nginx") as proxy:
            socket = proxy.url.replace("http", "ws", 1) + "/live"
            diagnosis = doctor("--url", f"{proxy.url}/shelves/7", "--url", socket, QUAESTOR_LIVE_HEARTBEAT_MS="300")
    assert [finding["level"] for finding in diagnosis.findings] == ["ok", "ok"], diagnosis.findings
