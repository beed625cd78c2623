"""Documents about live answers and queries: the table of events, and the configuration of nginx, are tried as printed."""

from __future__ import annotations

import json
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
from tests.live.socket_site import Json, Site, client_of, live_site

pytestmark = pytest.mark.anyio
DOCS = Path(__file__).parents[2] / "docs"
ROW = re.compile(r"^\| `(?P<method>\w+)\((?P<arguments>.*?)\)` \|(?P<events>[^|]*)\|", re.MULTILINE)
"""A write and its events in the table."""


@pytest.fixture(scope="module")
def site(mongo_url: str) -> Iterator[Site]:
    with live_site(mongo_url, "live_documents") as running_site:
        yield running_site


def written(match: Json) -> str:
    """An event as the document writes it."""
    place = f" at {match['index']}" if "index" in match else ""
    place += f" from {match['previousIndex']}" if "previousIndex" in match else ""
    return f"{match['matchType']}/{match['operation']} {match['data']['_id']}{place}"


async def test_each_write_of_the_document_causes_its_events(site: Site, items: Any) -> None:
    """The whole table of docs/live_semantics.md, from first to last."""
    text = (DOCS / "live_semantics.md").read_text()
    rows = list(ROW.finditer(text))
    assert len(rows) == 9
    items.insert_one({"_id": "task1", "title": "My Task 1"})
    message = re.search(r"```json\n(.*?)```", text, re.DOTALL)
    assert message is not None
    async with client_of(site) as client, client_of(site) as marks:
        await client.say(**json.loads(message[1]))
        result = await client.hear()
        assert [record["_id"] for record in result["data"]] == ["task1"]
        await marks.subscribe(query={"_id": "mark"})
        for row in rows:
            getattr(items, row["method"])(*json.loads(f"[{row['arguments']}]"))
            expected = re.findall(r"`([^`]+)`", row["events"])
            assert [written(await client.hear()) for _ in expected] == expected, row[0]
            if not expected:  # a later write that is seen by another subscription has no event here either
                items.insert_one({"_id": "mark"})
                assert (await marks.hear())["matchType"] == "add"
        items.insert_one({"_id": "last", "title": "My Task"})
        assert written(await client.hear()).startswith("add/insert last")


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
    assert [one["level"] for one in diagnosis.findings] == ["ok", "ok"], diagnosis.findings
