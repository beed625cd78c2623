"""The proxy as a shared HTTP cache (RFC 9111): what it stores, how long it uses it, how it asks again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email.utils import formatdate

import httpx
import pytest

from quaestor.proxy.options import ProxyOptions
from quaestor.proxy.server import application, configuration
from quaestor.read_path.unlisted_fields import UnlistedFields
from tests.end_to_end.scripted_origin import PLAIN, Asked, answer, scripted_origin, serving
from tests.support import eventually

pytestmark = pytest.mark.anyio


@dataclass
class World:
    """later_s: how far the cache's clock is ahead. answers: what the origin answers, in order; the last one again and again."""

    client: httpx.AsyncClient = field(default_factory=httpx.AsyncClient)
    answers: list[bytes] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    later_s: float = 0.0

    def now_ms(self) -> int:
        return int((time.time() + self.later_s) * 1000)

    def date(self, delta_s: float) -> str:
        return formatdate(self.now_ms() / 1000 + delta_s, usegmt=True)

    def script(self, request: Asked) -> bytes:
        self.asked.append(request)
        given = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        line, end, rest = given.partition(b"\r\n")
        dated = b"\r\nDate:" in given or not given
        return given if dated else line + end + f"Date: {self.date(0)}\r\n".encode() + rest

    async def get(self, path: str = "/", **fields: str) -> httpx.Response:
        return await self.client.get(path, headers={name.replace("_", "-"): value for name, value in fields.items()})


@asynccontextmanager
async def world(*answers: bytes) -> AsyncIterator[World]:
    made = World(answers=list(answers))
    async with scripted_origin(made.script) as origin:
        app = application(ProxyOptions(origin=origin.url), PLAIN, clock=made.now_ms)
        async with serving(configuration(app)) as url, httpx.AsyncClient(base_url=url) as client:
            await made.client.aclose()
            made.client = client
            yield made


def ok(*fields: str, body: bytes = b"x") -> bytes:
    return answer("200 OK", *fields, body=body)


@pytest.mark.parametrize(
    ("fields", "after_s", "reused"),
    [
        (["Cache-Control: max-age=100"], 50, True),
        (["Cache-Control: max-age=100"], 101, False),
        (["Cache-Control: MaX-aGe=100"], 50, True),
        (['Cache-Control: max-age="100"'], 50, True),
        (["Cache-Control: max-age=100, s-maxage=10"], 50, False),
        (["Cache-Control: s-maxage=100, max-age=10"], 50, True),
        (["Cache-Control: max-age=100, no-store"], 1, False),
        (["Cache-Control: max-age=100, private"], 1, False),
        (["Cache-Control: max-age=100, no-cache"], 1, False),
        (["Cache-Control: max-age=0"], 1, False),
        (["Cache-Control: max-age=-5"], 1, False),
        (["Cache-Control: max-age=abc"], 1, False),
        (["Cache-Control: max-age=99999999999999999999"], 1000, True),
        (["Cache-Control: max-age=100", "Age: 90"], 5, True),
        (["Cache-Control: max-age=100", "Age: 90"], 11, False),
        (["Cache-Control: max-age=100", "Age: 7200, 0"], 1, False),
        (["Cache-Control: max-age=100", "Age: 0, 7200"], 1, True),
        (["Cache-Control: max-age=100", "Age: nonsense"], 1, True),
        (["CDN-Cache-Control: max-age=100", "Cache-Control: no-store"], 50, True),
        (["CDN-Cache-Control: no-store", "Cache-Control: max-age=100"], 1, False),
        (["Pragma: no-cache", "Cache-Control: max-age=100"], 50, True),
        ([], 1, False),
        (["Last-Modified: Mon, 01 Jan 2001 00:00:00 GMT"], 1, False),
        (["Cache-Control: max-age=100", "Set-Cookie: a=b"], 1, False),
        (["Cache-Control: max-age=100", "Vary: *"], 1, False),
        (["Cache-Control: ,,;; =, max-age=100"], 50, True),
        (["Expires: 0", "Cache-Control: max-age=100"], 50, True),
    ],
)  # fmt: skip
async def test_how_long_an_answer_is_used(fields: list[str], after_s: float, reused: bool) -> None:
    async with world(ok(*fields)) as w:
        await w.get()
        w.later_s += after_s
        again = await w.get()
        assert again.text == "x"
        assert len(w.asked) == (1 if reused else 2), again.headers["cache-status"]
        if reused:
            assert int(again.headers["age"]) >= int(after_s)


@pytest.mark.parametrize(("delta_s", "after_s", "reused"), [(100, 50, True), (100, 101, False), (-100, 1, False)])
async def test_expires_counts_from_date(delta_s: float, after_s: float, reused: bool) -> None:
    async with world(b"") as w:
        w.answers = [ok(f"Date: {w.date(0)}", f"Expires: {w.date(delta_s)}")]
        await w.get()
        w.later_s += after_s
        await w.get()
        assert len(w.asked) == (1 if reused else 2)


@pytest.mark.parametrize("status", [200, 203, 204, 299, 301, 302, 307, 308, 400, 404, 410, 499, 500, 503, 599])
async def test_explicit_freshness_counts_for_every_status(status: int) -> None:
    body = b"" if status == 204 else b"x"
    script = answer(f"{status} X", "Cache-Control: max-age=100", body=body)
    async with world(script) as w:
        for _ in range(2):
            got = await w.get()
            assert (got.status_code, got.content) == (status, body)
        assert len(w.asked) == 1


async def test_a_stale_entry_is_validated_and_freshened_by_a_304() -> None:
    first = ok('ETag: "a"', "Cache-Control: max-age=10", "X-A: 1", "Last-Modified: Mon, 01 Jan 2001 00:00:00 GMT")
    same = answer("304 Not Modified", 'ETag: "a"', "Cache-Control: max-age=1000", "X-A: 2")
    async with world(first, same) as w:
        await w.get()
        w.later_s += 20
        validated = await w.get()
        assert w.asked[1].of(b"if-none-match") == [b'"a"']
        assert (validated.status_code, validated.text, validated.headers["x-a"]) == (200, "x", "2")
        w.later_s += 500
        assert (await w.get()).text == "x"
        assert len(w.asked) == 2


async def test_an_entry_that_changed_is_replaced() -> None:
    async with world(
        ok('ETag: "a"', "Cache-Control: max-age=10"), ok('ETag: "b"', "Cache-Control: max-age=10", body=b"y")
    ) as w:
        await w.get()
        w.later_s += 20
        assert (await w.get()).text == "y"
        assert (await w.get()).text == "y"
        assert len(w.asked) == 2


async def test_conditions_of_clients_are_answered_from_the_entry() -> None:
    async with world(ok('ETag: "a"', "Cache-Control: max-age=100")) as w:
        await w.get()
        assert (await w.get(if_none_match='"a"')).status_code == 304
        assert (await w.get(if_none_match='"b"')).status_code == 200
        assert len(w.asked) == 1


@pytest.mark.parametrize(
    ("directive", "reused"),
    [
        ("no-cache", False), ("max-age=0", False), ("max-age=100", True), ("min-fresh=95", False), ("min-fresh=1", True),
        ("only-if-cached", True), ("nonsense", True),
    ],
)  # fmt: skip
async def test_directives_of_a_client(directive: str, reused: bool) -> None:
    async with world(ok("Cache-Control: max-age=100")) as w:
        await w.get()
        w.later_s += 10
        await w.get(cache_control=directive)
        assert len(w.asked) == (1 if reused else 2)


async def test_only_if_cached_never_asks_the_origin() -> None:
    async with world(ok("Cache-Control: max-age=100")) as w:
        assert (await w.get(cache_control="only-if-cached")).status_code == 504
        assert w.asked == []


async def test_variants_are_kept_apart() -> None:
    async with world(ok("Cache-Control: max-age=100", "Vary: Accept-Language")) as w:
        for language in ("de", "en", "de", "en"):
            await w.get(accept_language=language)
        await w.get()
        assert [request.of(b"accept-language") for request in w.asked] == [[b"de"], [b"en"], []]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "M-SEARCH"])
@pytest.mark.parametrize("status", ["200 OK", "302 Found", "404 Not Found", "500 Oops"])
async def test_an_unsafe_request_outdates_what_it_names_unless_it_failed(method: str, status: str) -> None:
    fresh = ok("Cache-Control: max-age=100")
    changed = answer(status, "Location: /location", "Content-Location: /content", body=b"")
    async with world(fresh) as w:
        for path in ("/a", "/location", "/content", "/other"):
            await w.get(path)
        w.answers = [changed, fresh]
        await w.client.request(method, "/a")
        asked_before = len(w.asked)
        for path in ("/a", "/location", "/content", "/other"):
            await w.get(path)
        assert len(w.asked) - asked_before == (3 if status[0] in "23" else 0)


async def test_an_answer_to_a_request_with_credentials_is_shared_only_if_the_origin_says_so() -> None:
    for field_, shared in (("max-age=100", False), ("max-age=100, public", True), ("s-maxage=100", True)):
        async with world(ok(f"Cache-Control: {field_}")) as w:
            await w.get(authorization="Bearer mine")
            await w.get(authorization="Bearer other")
            assert len(w.asked) == (1 if shared else 2), field_


IDENTITY = (
    "x-forwarded-email", "x-access-key", "x-client-ip", "x-original-uri", "x-badge",
    "ocp-apim-subscription-key", "access-key", "signature", "signature-input", "dpop", "licence",
    "remote-groups", "remote-email", "remote-addr",
    "true-client-ip", "cf-connecting-ip", "cf-connecting-ipv6", "fastly-client-ip", "client-ip",
)  # fmt: skip
ORDINARY = (
    "accept", "accept-charset", "accept-encoding", "accept-language", "cdn-loop", "cf-ipcountry", "cf-ray", "cf-visitor",
    "device-memory", "dnt", "downlink", "early-data", "ect", "idempotency-key", "if-none-match", "max-forwards", "origin",
    "priority", "purpose", "referer", "rtt", "save-data", "sec-ch-ua", "sec-fetch-user", "sec-gpc", "sec-websocket-key",
    "traceparent", "upgrade-insecure-requests", "user-agent", "via", "width",
)  # fmt: skip
"""Fields that browsers and CDNs send, and that say nothing of who the client is."""


@pytest.mark.parametrize("name", IDENTITY)
async def test_an_unlisted_field_is_a_credential_until_the_origin_says_otherwise(name: str) -> None:
    """An answer with `max-age` alone passes neither from a client with the field to one without, nor back, nor to another's."""
    for first, second in (({name: "ann"}, {}), ({}, {name: "ann"}), ({name: "ann"}, {name: "bob"})):
        async with world(ok("Cache-Control: max-age=100")) as w:
            await w.get(**first)
            await w.get(**second)
            assert len(w.asked) == 2, (first, second)


@pytest.mark.parametrize(
    ("lines", "requested"),
    [
        (["Cache-Control: max-age=100, public"], 1),
        (["Cache-Control: s-maxage=100"], 1),
        (["Cache-Control: max-age=100", "Vary: X-Badge"], 3),
        (["Cache-Control: max-age=100", "Vary: X-Other"], 5),
    ],
)
async def test_the_origin_says_that_an_unlisted_field_is_no_credential(lines: list[str], requested: int) -> None:
    """`public` and `s-maxage` share one answer; a `Vary` that names the field shares it among equal values."""
    async with world(ok(*lines)) as w:
        for badge in ({"x-badge": "ann"}, {"x-badge": "bob"}, {}):
            await w.get(**badge)
        for badge in ({"x-badge": "ann"}, {"x-badge": "bob"}):
            await w.get(**badge)
        assert len(w.asked) == requested


async def test_ordinary_fields_of_browsers_and_cdns_are_no_credentials() -> None:
    """Each client has its own values, and receives the one answer."""
    async with world(ok("Cache-Control: max-age=100")) as w:
        for name in ORDINARY:
            for value in ("1", "2"):
                await w.get(**{name: value})
                assert len(w.asked) == 1, name


@pytest.mark.parametrize("name", ["cf-connecting-ip", "remote-groups", "access-key", "x-badge"])
def test_the_setting_names_fields_that_are_no_credentials(name: str) -> None:
    """Behind a CDN each request carries the client's address, for example."""
    assert UnlistedFields(())[name.encode()]
    assert not UnlistedFields({name.encode()})[name.encode()]


@pytest.mark.parametrize("name", ["x-request-id", "x-requested-with", "x-amzn-trace-id", "x-forwarded-for"])
async def test_a_field_that_says_nothing_of_the_client_is_no_credential(name: str) -> None:
    async with world(ok("Cache-Control: max-age=100")) as w:
        await w.get(**{name: "10.0.0.1"})
        await w.get(**{name: "10.0.0.2"})
        assert len(w.asked) == 1


async def test_a_stale_entry_stands_in_for_an_origin_that_fails_if_it_may() -> None:
    for control, stands_in in (
        ("max-age=10, stale-if-error=60", True),
        ("max-age=10, stale-if-error=60, must-revalidate", False),
        ("max-age=10", False),
    ):
        for failure in (answer("503 Service Unavailable"), b""):
            async with world(ok(f"Cache-Control: {control}"), failure) as w:
                await w.get()
                w.later_s += 20
                got = await w.get()
                assert (got.status_code == 200) is stands_in, (control, failure)


async def test_a_stale_entry_is_used_while_it_is_validated() -> None:
    first = ok("Cache-Control: max-age=10, stale-while-revalidate=60")
    async with world(first, ok("Cache-Control: max-age=100", body=b"y")) as w:
        await w.get()
        w.later_s += 20
        assert (await w.get()).text == "x"

        async def refreshed() -> bool:
            return (await w.get()).text == "y"

        await eventually(refreshed)
        assert len(w.asked) == 2


async def test_head_is_answered_from_a_get_and_ranges_from_the_whole() -> None:
    async with world(ok("Cache-Control: max-age=100", 'ETag: "a"', body=b"0123456789")) as w:
        await w.get()
        head = await w.client.head("/")
        assert (head.headers["content-length"], head.content) == ("10", b"")
        part = await w.get(range="bytes=2-4")
        assert (part.status_code, part.text, part.headers["content-range"]) == (206, "234", "bytes 2-4/10")
        assert len(w.asked) == 1


async def test_the_stored_answer_is_the_answer_without_fields_of_its_connection() -> None:
    fields = ["Cache-Control: max-age=100", "X-A: 1", "Link: </a>", "Link: </b>", "Connection: X-Hop", "X-Hop: 1"]
    async with world(ok(*fields)) as w:
        await w.get()
        hit = await w.get()
        assert hit.headers.get_list("link") == ["</a>", "</b>"]
        assert "x-hop" not in hit.headers
        assert hit.headers["via"] == "1.1 quaestor"
        assert hit.headers["cache-control"] == "max-age=100"
        assert len(hit.headers.get_list("date")) == 1


async def test_requests_for_one_answer_wait_for_one_run() -> None:

    async with world(ok("Cache-Control: max-age=100")) as w:
        got = await asyncio.gather(*(w.get() for _ in range(10)))
        assert {answer.text for answer in got} == {"x"}
        assert len(w.asked) == 1


@pytest.mark.parametrize("said", ["max-age=100", "max-age=100, must-revalidate", "max-age=100, proxy-revalidate"])
async def test_an_answer_to_a_cookie_is_for_nobody_else_unless_its_origin_speaks_of_shared_caches(
    said: str,
) -> None:
    """RFC 9111 would let it be stored; private answers never reach a shared cache."""
    async with world(*(ok(f"Cache-Control: {said}", body=b"%d" % number) for number in range(5))) as w:
        assert (await w.get(Cookie="session=ann")).text == "0"
        assert (await w.get(Cookie="session=bob")).text == "1"
        assert (await w.get()).text == "2", "nobody's"
        assert (await w.get()).text == "2"
        assert (await w.get(Cookie="session=ann")).text == "3", "nor is what was stored for nobody"
        assert (await w.get(Cookie="session=ann", Authorization="Bearer x")).text == "4"
