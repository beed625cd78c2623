"""Long polls of one live query through one real Varnish: requests of the application for a change, and time to the last poller.

A real mongod, an application with live queries under uvicorn, and Varnish with the configuration that `quaestor cdn config`
prints. All pollers wait for the same position of one query. An insert ends their waits, and all poll on behind it. The
application counts its requests. Time counts from the acknowledgement of the insert until the last poller has its answer.
After a change all polls reach Varnish at once, more than its queues hold by default; `thread_queue_limit` makes room for them.
`lost`: pollers whose connection Varnish has closed, or who got another answer than 200.
Aim: at most one request of the application for each change, and no poller lost.
Run: python -m benchmarks.live_long_polls [--pollers 10000] [--changes 10] [--no-save] (2 minutes)
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from functools import partial
from typing import Any, Final

import httpx
import pymongo

from benchmarks import harness
from benchmarks.setups.live_clients import AT_ONCE, most_open_files
from quaestor.cdn_adapters import varnish_vcl
from quaestor.testing import servers
from quaestor.testing.servers import HOST

DATABASE: Final = "live_long_polls"
TOKEN: Final = "open-sesame-0123"
LONGEST_S: Final = 60.0
"""How long the answers to all pollers may take."""
_NEXT: Final = re.compile(rb'"next": ?"([^"]+)"')


class Poller(asyncio.Protocol):
    """One client that polls on a kept connection.

    following: query string of the next poll, from the newest answer.
    arrived_s: when that answer was there.
    answers: number of answers that held a change.
    lost: the connection has ended.
    """

    def __init__(self, host: str) -> None:
        self.following = ""
        self.arrived_s = 0.0
        self.answers = 0
        self.lost = False
        self._host = host
        self._received = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the connection."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def poll(self, following: str) -> None:
        """Send the poll behind a position."""
        assert self._transport is not None
        self._received = b""
        self._transport.write(f"GET /live/items{following} HTTP/1.1\r\nHost: {self._host}\r\n\r\n".encode())

    def data_received(self, data: bytes) -> None:
        """Take an answer. Without a change, as at the end of a wait, poll on at once."""
        self._received += data
        found = _NEXT.search(self._received)
        if found is None:
            return
        if not self._received.startswith(b"HTTP/1.1 200"):
            self.close()
            return
        self.following = found[1].decode()
        if b'"matchType"' in self._received:
            self.arrived_s = time.perf_counter()
            self.answers += 1
            self._received = b""
        else:
            self.poll(self.following)

    def connection_lost(self, exc: Exception | None) -> None:
        """Poll no more."""
        self.lost = True

    def close(self) -> None:
        """End the connection."""
        assert self._transport is not None
        self._transport.abort()


async def connected(host: str, port: int, count: int) -> list[Poller]:
    """As many clients, without a request yet."""
    loop = asyncio.get_running_loop()
    pollers: list[Poller] = []
    for start in range(0, count, AT_ONCE):
        some = (
            loop.create_connection(lambda: Poller(host), HOST, port) for _ in range(start, min(count, start + AT_ONCE))
        )
        pollers += [poller for _, poller in await asyncio.gather(*some)]
    return pollers


async def one_change(pollers: list[Poller], items: Any, app: httpx.AsyncClient, following: str) -> tuple[float, int]:
    """Let all poll, insert a record; milliseconds until the last answer, and requests of the application meanwhile."""
    before = await _waits(app)
    pollers = [poller for poller in pollers if not poller.lost]
    answers = pollers[0].answers
    for poller in pollers:
        poller.poll(following)
    async with asyncio.timeout(LONGEST_S):
        while await _waits(app) == before:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await asyncio.to_thread(items.insert_one, {"all": 1})
    acknowledged_s = time.perf_counter()
    async with asyncio.timeout(LONGEST_S):
        while any(poller.answers == answers and not poller.lost for poller in pollers):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    took_ms = (max(poller.arrived_s for poller in pollers) - acknowledged_s) * 1_000
    return took_ms, await _waits(app) - before


async def _waits(app: httpx.AsyncClient) -> int:
    """Number of long polls that the application has received so far."""
    return int((await app.get("/polls")).text)


async def measured(mongo_url: str, pollers: int, changes: int) -> dict[str, Any]:
    """Figures of all changes."""
    environment = os.environ | {"MONGO_URL": mongo_url, "DATABASE": DATABASE}
    took_ms: list[float] = []
    requests: list[int] = []
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as client:
        client.drop_database(DATABASE)
        items = client[DATABASE].items
        items.create_index("all")
        with harness.uvicorn("benchmarks.setups.live_endpoint:create_counted", environment=environment) as server:
            vcl = varnish_vcl(HOST, server.port, purge_token=TOKEN)
            room = {"thread_queue_limit": pollers}
            with servers.running(partial(servers.varnish_server, vcl=vcl, parameters=room), "varnish") as varnish:
                async with httpx.AsyncClient(base_url=server.url, timeout=60) as app:
                    first = await app.get("/live/items", params={"query": '{"all": 1}'})
                    following = str(first.json()["next"])
                    clients = await connected(f"{HOST}:{varnish.port}", varnish.port, pollers)
                    for _ in range(changes):
                        one_ms, asked = await one_change(clients, items, app, following)
                        took_ms.append(one_ms)
                        requests.append(asked)
                        following = next(poller.following for poller in clients if not poller.lost)
                    lost = sum(poller.lost for poller in clients)
                    for poller in clients:
                        poller.close()
        client.drop_database(DATABASE)
    return {
        "pollers": pollers,
        "lost": lost,
        "changes": changes,
        "to_last": harness.summary(took_ms),
        "requests_a_change": {"mean": sum(requests) / changes, "most": max(requests)},
        "aim": {"requests_a_change": 1, "lost": 0},
    }


def main() -> None:
    """Measure and write the result."""
    given = harness.arguments(__doc__, pollers=10_000, changes=10)
    most_open_files()
    with servers.mongo_url(journal_ms=10) as url:
        result = asyncio.run(measured(url, given.pollers, given.changes))
    harness.report("live_long_polls", result, keep=not given.no_save)


if __name__ == "__main__":
    main()
