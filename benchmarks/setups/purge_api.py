"""A provider's API on loopback that keeps its bucket, and a place that speaks to it, for processes that share one account."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

from quaestor.cdn_adapters.answers import Answer, Delivered, Throttled
from quaestor.cdn_adapters.capabilities import TAG, Capabilities, Owner, Rate, TagField
from quaestor.cdn_adapters.place import Connection, Target, cheapest_targets
from quaestor.cdn_adapters.tag_field import tag_headers
from quaestor.errors import CdnError
from quaestor.testing.serving import served


class Account:
    """A provider's state of one account.

    purged: how often each tag was. requests: how many came. refused: how many were too many.
    answers: whether it does; while it does not, nothing is purged either.
    """

    def __init__(self, *, per_s: float, burst: int) -> None:
        self.per_s, self.burst = per_s, burst
        self.purged: dict[str, int] = {}
        self.requests = 0
        self.refused = 0
        self.url = ""
        self.answers = threading.Event()
        self.answers.set()
        self._tokens, self._at_s = float(burst), time.monotonic()
        self._lock = threading.Lock()

    def purge(self, tags: Sequence[str]) -> bool:
        with self._lock:
            now_s = time.monotonic()
            self._tokens = min(self.burst, self._tokens + (now_s - self._at_s) * self.per_s)
            self._at_s = now_s
            self.requests += 1
            if self._tokens < 1:
                self.refused += 1
                return False
            self._tokens -= 1
            for tag in tags:
                self.purged[tag] = self.purged.get(tag, 0) + 1
            return True


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_POST(self) -> None:
        tags = json.loads(self.rfile.read(int(self.headers["content-length"])))["tags"]
        self.server.account.answers.wait()
        status = 200 if len(tags) <= 100 and self.server.account.purge(tags) else 429
        self.send_response(status)
        self.send_header("content-length", "0")
        if status == 429:
            self.send_header("retry-after", "1")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the base class
        """Nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    account: Account


@contextmanager
def purge_api(*, per_s: float, burst: int) -> Iterator[Account]:
    server = _Server(("127.0.0.1", 0), _Handler)
    server.account = Account(per_s=per_s, burst=burst)
    server.account.url = f"http://127.0.0.1:{server.server_port}"
    with served(server):
        yield server.account


class AccountPlace:
    """Implements Place for that API. Without `per_s` it has no rates, and takes one purge in a request."""

    name = "account"

    def __init__(self, url: str, *, bucket: str, per_s: float, burst: int) -> None:
        self.address = self._url = url
        rate = Rate(bucket=bucket, owner=Owner.ACCOUNT, per_s=per_s, burst=burst)
        self.capabilities = Capabilities(
            kinds=(TAG,),
            batch={TAG: 100 if per_s else 1},
            tag_field=TagField(name="cache-tag", separator=","),
            rates=(rate,) if per_s else (),
        )

    def response_headers(self, tags: Sequence[str]) -> list[tuple[bytes, bytes]]:
        return tag_headers(self.capabilities.tag_field, tags)

    def targets(self, *, tags: Sequence[str], urls: Sequence[str]) -> list[Target]:
        return cheapest_targets(self.capabilities, tags=tags, urls=urls)

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Connection]:
        async with httpx.AsyncClient(trust_env=False, timeout=20) as client:
            yield _Connected(client, self._url)


class _Connected:
    def __init__(self, client: httpx.AsyncClient, url: str) -> None:
        self._client = client
        self._url = url

    async def send(self, targets: Sequence[Target]) -> Answer:
        try:
            response = await self._client.post(self._url, json={"tags": [target.value for target in targets]})
        except httpx.HTTPError as error:
            raise CdnError(f"no answer: {error!r}") from error
        if response.status_code == 429:
            return Throttled(retry_after_s=float(response.headers["retry-after"]))
        return Delivered()

    async def completed(self, ticket: str) -> Answer:
        return Delivered()
