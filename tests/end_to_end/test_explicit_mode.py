"""Explicit mode: answers that depend on no query live as their own fields say, as in any shared cache (RFC 9111)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from tests.end_to_end.site import Site, status_of
from tests.hand_driven import reads

pytestmark = pytest.mark.anyio

DATE = "Tue, 14 Nov 2023 22:13:20 GMT"


class Shop(Site):
    """Answers what `answer` makes of a request, without reading anything. asked: the requests that reached the handler."""

    def __init__(self, answer: Callable[[Request], Response]) -> None:
        self.answer = answer
        self.asked: list[Request] = []

        async def handler(request: Request) -> Response:
            self.asked.append(request)
            return self.answer(request)

        super().__init__(handler, explicit=True)

    def pass_ms(self, ms: int) -> None:
        self.engine.clock.now_ms += ms


def saying(*lines: str, body: str = "x", status: int = 200) -> Callable[[Request], Response]:
    def answer(request: Request) -> Response:
        response = PlainTextResponse(body, status)
        for line in lines:
            name, _, value = line.partition(": ")
            response.headers.append(name, value)
        return response

    return answer


async def test_an_answer_with_a_lifetime_is_served_for_so_long_with_its_fields_as_they_were() -> None:
    shop = Shop(saying("cache-control: max-age=60", f"date: {DATE}", "x-a: 1", "age: 30", "connection: x-b", "x-b: 2"))
    first = await shop.get()
    assert status_of(first) == "Quaestor; fwd=uri-miss; stored"
    assert first.headers["age"] == "30"
    shop.pass_ms(10_000)
    hit = await shop.get()
    assert status_of(hit) == "Quaestor; hit; ttl=20"
    assert (hit.headers["age"], hit.headers["cache-control"], hit.headers["x-a"]) == ("40", "max-age=60", "1")
    assert "etag" not in hit.headers
    assert "x-b" not in hit.headers
    shop.pass_ms(20_000)
    assert status_of(await shop.get()) == "Quaestor; fwd=stale; stored"
    assert shop.runs == 2


@pytest.mark.parametrize(
    "line",
    [
        "x-a: 1",
        "last-modified: Tue, 14 Nov 2023 22:13:20 GMT",
        "cache-control: public",
        "cache-control: max-age=60, private",
        "cache-control: max-age=60, no-store",
        "cache-control: max-age=0",
        "cache-control: max-age=60, no-cache",
        "cache-control: max-age='60'",
        "expires: 0",
        "cdn-cache-control: no-store",
    ],
)
async def test_answers_without_freshness_are_fetched_every_time_and_go_out_unchanged(line: str) -> None:
    shop = Shop(saying(line, *(["cache-control: max-age=60"] if line.startswith("cdn") else [])))
    for _ in range(2):
        answer = await shop.get()
        name, _, value = line.partition(": ")
        assert answer.headers[name] == value
        assert answer.headers.get("cache-control") in (value, "max-age=60", None)
    assert shop.runs == 2


async def test_a_stale_entry_is_validated_and_freshened_by_a_304() -> None:
    shop = Shop(
        saying("cache-control: max-age=1", 'etag: "a"', f"last-modified: {DATE}", "x-a: 1", "x-b: 1", body="whole")
    )
    await shop.get()
    shop.pass_ms(2_000)
    shop.answer = saying("cache-control: max-age=100", 'etag: "a"', "x-a: 2", body="", status=304)
    validated = await shop.get()
    assert shop.asked[1].headers["if-none-match"] == '"a"'
    assert shop.asked[1].headers["if-modified-since"] == DATE
    assert (validated.status_code, validated.text) == (200, "whole")
    assert status_of(validated) == "Quaestor; fwd=stale; fwd-status=304; stored"
    assert (validated.headers["x-a"], validated.headers["x-b"]) == ("2", "1")
    assert validated.headers["content-length"] == "5"
    shop.pass_ms(50_000)
    hit = await shop.get()
    assert (hit.text, hit.headers["x-a"], hit.headers["cache-control"]) == ("whole", "2", "max-age=100")
    assert status_of(hit) == "Quaestor; hit; ttl=50"


async def test_a_304_about_another_answer_makes_the_cache_ask_for_the_whole() -> None:
    shop = Shop(saying("cache-control: max-age=1", 'etag: "a"', body="old"))
    await shop.get()
    shop.pass_ms(2_000)

    def answer(request: Request) -> Response:
        if "if-none-match" in request.headers:
            return Response(status_code=304, headers={"etag": '"b"'})
        return PlainTextResponse("new", headers={"etag": '"b"', "cache-control": "max-age=60"})

    shop.answer = answer
    assert (await shop.get()).text == "new"
    assert (await shop.get()).text == "new"
    assert shop.runs == 3


async def test_no_cache_entries_are_validated_every_time() -> None:
    shop = Shop(saying("cache-control: max-age=60, no-cache", 'etag: "a"'))
    await shop.get()
    shop.answer = saying("cache-control: max-age=60, no-cache", 'etag: "a"', body="", status=304)
    for _ in range(2):
        assert (await shop.get()).text == "x"
        assert shop.asked[-1].headers["if-none-match"] == '"a"'
    assert shop.runs == 3


async def test_clients_conditions_are_answered_from_what_was_validated() -> None:
    shop = Shop(saying("cache-control: max-age=1", 'etag: "a"'))
    await shop.get()
    shop.pass_ms(2_000)
    shop.answer = saying("cache-control: max-age=60", body="", status=304)
    answer = await shop.get(if_none_match='"z", "a"')
    assert (answer.status_code, answer.headers["etag"]) == (304, '"a"')
    assert shop.asked[1].headers["if-none-match"] == '"a"'


@pytest.mark.parametrize(
    ("requested", "reaches"),
    [
        ({"cache_control": "no-cache"}, True),
        ({"pragma": "no-cache"}, True),
        ({"pragma": "no-cache", "cache_control": "x"}, False),
        ({"cache_control": "max-age=5"}, True),
        ({"cache_control": "max-age=15"}, False),
        ({"cache_control": "min-fresh=55"}, True),
        ({"cache_control": "min-fresh=40"}, False),
        ({"cache_control": "nothing-to-see-here"}, False),
        ({"cache_control": "max-age=x"}, True),
    ],
)
async def test_request_directives_are_honoured(requested: dict[str, str], reaches: bool) -> None:
    shop = Shop(saying("cache-control: max-age=60"))
    await shop.get()
    shop.pass_ms(10_000)
    await shop.get(**requested)
    assert shop.runs == (2 if reaches else 1)


async def test_max_stale_is_served_unless_the_answer_forbids_it() -> None:
    for said, runs in (
        ("max-age=1", 1),
        ("s-maxage=1", 2),
        ("max-age=1, must-revalidate", 2),
        ("max-age=1, no-cache", 2),
    ):
        shop = Shop(saying(f"cache-control: {said}"))
        await shop.get()
        shop.pass_ms(4_000)
        answer = await shop.get(cache_control="max-stale=10")
        assert shop.runs == runs
        if runs == 1:
            assert (status_of(answer), answer.headers["age"]) == ("Quaestor; hit; ttl=-3", "4")
            assert shop.engine.count("stale_served", why="accepted") == 1


@pytest.mark.parametrize(
    ("said", "shared"),
    [("max-age=60", False), ("max-age=60, public", True), ("s-maxage=60", True), ("max-age=60, must-revalidate", None)],
)
async def test_answers_to_credentials_are_shared_only_if_the_origin_says_so(said: str, shared: bool | None) -> None:
    """None: with `Authorization` and nothing besides, as RFC 9111, section 3.5 has it; pages of one person say it too."""
    for fields in (
        {"authorization": "a"},
        {"cookie": "a=b"},
        {"x_api_key": "a"},
        {"authorization": "a", "cookie": "a=b"},
    ):
        is_shared = fields.keys() == {"authorization"} if shared is None else shared
        shop = Shop(saying(f"cache-control: {said}"))
        await shop.get(**fields)
        await shop.get()
        assert shop.runs == (1 if is_shared else 2)
        await shop.get(**dict.fromkeys(fields, "another"))
        assert shop.runs == (1 if is_shared else 3)


@pytest.mark.parametrize("method", ["POST"])
async def test_an_unsafe_request_outdates_its_target_in_every_variant_and_what_it_names(method: str) -> None:
    shop = Shop(saying("cache-control: max-age=600", "vary: accept-language"))
    for path in ("/a", "/b", "/c", "/d"):
        for language in ("de", "en"):
            await shop.get(path, accept_language=language)
    shop.answer = saying("location: /b", "content-location: http://shop.test/c")
    await shop.client.request(method, "/a")
    shop.pass_ms(1)
    shop.answer = saying("cache-control: max-age=600", "vary: accept-language")
    before = shop.runs
    for path, reaches in (("/a", 1), ("/b", 1), ("/c", 1), ("/d", 0)):
        for language in ("de", "en"):
            await shop.get(path, accept_language=language)
            before += reaches
            assert shop.runs == before, path
    for path in ("/a", "/b"):
        assert "hit" in status_of(await shop.get(path, accept_language="de"))


async def test_a_failed_unsafe_request_outdates_nothing() -> None:
    shop = Shop(saying("cache-control: max-age=600"))
    await shop.get()
    shop.answer = saying("location: /items", status=500)
    await shop.client.post("/items")
    assert "hit" in status_of(await shop.get())


async def test_an_answer_asked_for_before_an_unsafe_request_is_not_kept_after_it() -> None:
    shop = Shop(saying())

    async def slow(request: Request) -> Response:
        if request.method == "GET" and shop.runs == 1:
            await shop.client.post("/items")
        return PlainTextResponse("x", headers={"cache-control": "max-age=600"})

    site = Site(slow, explicit=True)
    shop.client = site.client
    shop.runs = 1
    await site.get()
    shop.runs = 2
    site.engine.clock.now_ms += 1
    assert "fwd" in status_of(await site.get())
    assert "hit" in status_of(await site.get())


async def test_an_answer_of_any_status_with_a_lifetime_is_kept() -> None:
    for status in (203, 299, 301, 302, 307, 400, 404, 410, 499, 500, 503, 599):
        shop = Shop(saying("cache-control: max-age=60", status=status))
        await shop.get()
        answer = await shop.get()
        assert (answer.status_code, shop.runs) == (status, 1)


async def test_a_head_freshens_a_stale_entry_or_drops_one_that_is_another_by_now() -> None:
    for etag, runs, body in (('"a"', 2, "old"), ('"b"', 3, "new")):
        shop = Shop(saying("cache-control: max-age=1", 'etag: "a"', "x-a: 1", body="old"))
        await shop.get()
        shop.pass_ms(2_000)
        shop.answer = saying("cache-control: max-age=100", f"etag: {etag}", "x-a: 2", body="new")
        head = await shop.client.head("/items")
        assert head.content == b""
        answer = await shop.get()
        assert (answer.text, answer.headers["x-a"], shop.runs) == (body, "2", runs)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("line", ["set-cookie: a=b", "connection: x-b"])
async def test_fields_that_a_304_or_a_head_may_not_add_are_not_kept(method: str, line: str) -> None:
    shop = Shop(saying("cache-control: max-age=1", 'etag: "a"', body="old"))
    await shop.get()
    shop.pass_ms(2_000)

    def answering(*lines: str) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            known = "if-none-match" in request.headers
            lines_ = ("cache-control: max-age=100", 'etag: "a"', *lines)
            return saying(*lines_, body="" if known else "old", status=304 if known else 200)(request)

        return answer

    shop.answer = answering("x-b: 2", line)
    assert (await shop.client.request(method, "/items")).status_code == 200
    shop.answer = answering("x-c: 3")
    answer = await shop.get()
    assert answer.text == "old"
    assert "set-cookie" not in answer.headers
    assert "x-b" not in answer.headers
    assert shop.runs == (2 if line.startswith("connection") else 3)


async def test_the_grid_is_not_needed_for_them_and_guards_the_others_as_ever() -> None:
    shop = Shop(saying("cache-control: max-age=60"))
    shop.engine.registry.up = False
    await shop.get()
    assert "hit" in status_of(await shop.get())

    def reading(_: Request) -> Response:
        reads()
        return PlainTextResponse("x", headers={"cache-control": "max-age=60"})

    shop = Shop(reading)
    await shop.get()
    assert "hit" in status_of(await shop.get())
    shop.engine.registry.kill()
    assert "fwd" in status_of(await shop.get())


async def test_without_explicit_mode_nothing_of_this_is_stored() -> None:
    async def handler(_: Request) -> Response:
        return PlainTextResponse("x", headers={"cache-control": "max-age=60"})

    site = Site(handler)
    await site.get()
    await site.get()
    assert site.runs == 2
