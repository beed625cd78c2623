"""Ranges out of whole and out of partial entries, and what the parts become: RFC 9110, sections 14 and 15.3.7, RFC 9111, 3.4."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response

from quaestor.proxy.options import ProxyOptions
from quaestor.read_path.partial_answers import MAX_PARTS, key_of_parts, places
from quaestor.settings import Settings
from quaestor.store.memory import MemoryStore
from quaestor.store.redis import RedisStore
from quaestor.store.two_level import TwoLevelStore
from tests.end_to_end.scripted_origin import Asked, answer, proxy, scripted_origin
from tests.end_to_end.site import Site, status_of
from tests.hand_driven import reads
from tests.support import eventually

pytestmark = pytest.mark.anyio

CONTENT = bytes(range(256)) * 8
KEY = "http://shop.test/items"


class Film(Site):
    """A file whose app answers ranges of it itself, as Starlette does.

    asked: the Range of each request that came through to it.
    """

    def __init__(self, folder: Path, *, read: bool = False, **settings: Any) -> None:
        self.asked: list[str | None] = []
        self.path = folder / "film"
        self.path.write_bytes(CONTENT)
        self.fields = {"cache-control": "max-age=60"}

        async def handler(request: Request) -> Response:
            self.asked.append(request.headers.get("range"))
            if read:
                reads()
            return FileResponse(self.path, headers=self.fields)

        super().__init__(handler, **{"explicit": not read, "partial_answers": True, **settings})

    def parts(self) -> list[tuple[int, int]]:
        resident = self.engine.store.resident(key_of_parts(KEY))
        return [] if resident is None else [(span.first, span.last) for span, _ in places(resident.response)[0]]


def part_of(answered: httpx.Response) -> tuple[int, str, bytes]:
    return answered.status_code, answered.headers.get("content-range", ""), answered.content


@pytest.mark.parametrize("read", [False, True])
async def test_a_part_is_stored_and_smaller_ones_are_served_from_it(tmp_path: Path, read: bool) -> None:
    film = Film(tmp_path, read=read)
    first = await film.get(range="bytes=100-199")
    assert part_of(first) == (206, "bytes 100-199/2048", CONTENT[100:200])
    assert "stored" in status_of(first)
    for request, low, high in [("100-199", 100, 199), ("120-130", 120, 130), ("199-199", 199, 199)]:
        again = await film.get(range=f"bytes={request}")
        assert part_of(again) == (206, f"bytes {low}-{high}/2048", CONTENT[low : high + 1])
        assert ("hit" in status_of(again), again.headers["content-length"]) == (True, str(high + 1 - low))
        assert again.headers["etag"] == first.headers["etag"]
    assert film.runs == 1


async def test_the_end_of_a_whole_can_be_asked_for_from_its_end(tmp_path: Path) -> None:
    film = Film(tmp_path)
    await film.get(range="bytes=-100")
    for request in ("bytes=-10", "bytes=2038-", "bytes=2038-999999"):
        assert part_of(await film.get(range=request)) == (206, "bytes 2038-2047/2048", CONTENT[-10:])
    assert film.runs == 1


async def test_nothing_of_it_happens_unasked(tmp_path: Path) -> None:
    film = Film(tmp_path, partial_answers=False)
    for _ in range(2):
        assert part_of(await film.get(range="bytes=0-9")) == (206, "bytes 0-9/2048", CONTENT[:10])
    assert (film.runs, film.parts()) == (2, [])


async def test_a_request_for_the_whole_is_never_sent_a_part(tmp_path: Path) -> None:
    film = Film(tmp_path, read=True)
    await film.get(range="bytes=0-99")
    whole = await film.get()
    assert (whole.status_code, whole.content) == (200, CONTENT)
    assert film.asked == ["bytes=0-99", None], "what queries guard is made as a whole"


@pytest.mark.parametrize("read", [False, True])
async def test_parts_of_one_representation_are_combined(tmp_path: Path, read: bool) -> None:
    film = Film(tmp_path, read=read)
    for request in ("0-99", "200-299", "90-210"):
        await film.get(range=f"bytes={request}")
    assert film.parts() == [(0, 299)]
    assert part_of(await film.get(range="bytes=50-250")) == (206, "bytes 50-250/2048", CONTENT[50:251])
    await film.get(range="bytes=300-")
    whole = await film.get()
    assert (whole.status_code, whole.content, "hit" in status_of(whole)) == (200, CONTENT, True)
    assert (whole.headers["content-length"], "content-range" in whole.headers) == ("2048", False)
    assert film.runs == 4


@pytest.mark.parametrize("dies", [0, 1])
async def test_a_combined_answer_dies_with_the_reads_of_each_of_its_parts(tmp_path: Path, dies: int) -> None:
    film = Film(tmp_path, read=True)
    await film.get(range="bytes=0-99")
    first = list(film.engine.registry.leases)
    await film.get(range="bytes=100-199")
    second = [lease for lease in film.engine.registry.leases if lease not in first]
    assert "hit" in status_of(await film.get(range="bytes=50-150"))
    film.engine.registry.kill(*(first, second)[dies])
    assert "hit" not in status_of(await film.get(range="bytes=50-150"))


@pytest.mark.parametrize("changed", [False, True])
async def test_a_part_is_verified_against_the_same_part(tmp_path: Path, changed: bool) -> None:
    """The handler is asked for the range again, and compared with what it answered, not with what that became part of."""
    film = Film(tmp_path, read=True, verification=True, probation_answers=3)
    await film.get(range="bytes=0-99")
    if changed:
        film.path.write_bytes(CONTENT[::-1])
    registry = film.engine.registry
    await eventually(lambda: film.runs == 2)
    registry.newest = 7
    probation = film.engine.read_path.probation
    if changed:
        await eventually(lambda: bool(probation.quarantines))
        return
    await eventually(lambda: film.engine.count("verifications", verdict="same") == 1)
    await film.get(range="bytes=100-199")
    assert film.parts() == [(0, 199)]
    await eventually(lambda: film.engine.count("verifications", verdict="same") >= 2)
    assert probation.quarantines == []


async def test_a_part_out_of_the_shared_store_is_served_and_combined(
    tmp_path: Path, redis_url: str, prefix: str
) -> None:
    """A range that one process has fetched is served by the other processes without the app."""
    connection = Redis.from_url(redis_url, protocol=2)
    shared = RedisStore(connection, deployment=prefix)
    films = [
        Film(tmp_path, store=TwoLevelStore(MemoryStore(budget_bytes=10**6), shared), leases=shared) for _ in range(2)
    ]
    await films[0].get(range="bytes=0-99")
    assert (await films[1].get(range="bytes=10-19")).content == CONTENT[10:20]
    assert films[1].runs == 0
    await films[1].get(range="bytes=100-199")
    assert films[1].parts() == [(0, 199)]
    await films[1].get(range="bytes=200-")
    films[0].engine.store.drop(key_of_parts(KEY))
    assert (await films[0].get()).content == CONTENT
    assert films[0].runs == 1, "the whole that the other has made of the parts"
    await connection.aclose()


async def test_a_part_of_another_version_takes_the_place_of_what_is_stored(tmp_path: Path) -> None:
    film = Film(tmp_path)
    await film.get(range="bytes=0-99")
    film.path.write_bytes(CONTENT[::-1] + b"more")
    await film.get(range="bytes=100-199")
    assert film.parts() == [(100, 199)]
    assert part_of(await film.get(range="bytes=0-9")) == (206, "bytes 0-9/2052", CONTENT[::-1][:10])


@pytest.mark.parametrize("etag", ['W/"v1"', None, "v1"])
async def test_without_a_strong_validator_nothing_is_combined(etag: str | None) -> None:
    """Two parts with equal weak tags need not be of the same bytes."""

    async def handler(request: Request) -> Response:
        first, last = request.headers["range"].removeprefix("bytes=").split("-")
        fields = {"content-range": f"bytes {first}-{last}/20", "cache-control": "max-age=60"}
        return PlainTextResponse("0123456789", 206, headers=fields if etag is None else {**fields, "etag": etag})

    site = Site(handler, explicit=True, partial_answers=True)
    await site.get(range="bytes=0-9")
    assert "hit" in status_of(await site.get(range="bytes=2-5")), "alone it can be used"
    await site.get(range="bytes=10-19")
    assert "hit" not in status_of(await site.get(range="bytes=2-5"))


async def test_parts_that_queries_guard_are_stored_only_with_a_strong_tag_of_the_handler() -> None:
    """The cache would make one of the bytes of the part."""

    async def handler(request: Request) -> Response:
        reads()
        return PlainTextResponse("0123456789", 206, headers={"content-range": "bytes 0-9/20"})

    site = Site(handler, partial_answers=True)
    for _ in range(2):
        answered = await site.get(range="bytes=0-9")
        assert (answered.content, "etag" in answered.headers) == (b"0123456789", False)
    assert site.runs == 2


@pytest.mark.parametrize(
    "place",
    [
        "bytes 0-9/*", "bytes 0-8/20", "bytes 0-10/20", "bytes 9-0/20", "bytes 0-9/5", "items 0-9/20", "bytes 1-10/20",
        "bytes 0-9/99999999999999999999", "bytes */20", "bytes 0-9", "", "bytes=0-9/20",
    ],
)  # fmt: skip
async def test_a_part_that_is_not_just_what_it_says_is_passed_on_and_not_stored(place: str) -> None:
    """Of an unknown whole, of another length or place than it says, of another unit."""

    async def handler(request: Request) -> Response:
        return PlainTextResponse("0123456789", 206, headers={"content-range": place, "cache-control": "max-age=60"})

    site = Site(handler, explicit=True, partial_answers=True)
    for _ in range(2):
        answered = await site.get(range="bytes=0-9")
        assert part_of(answered) == (206, place, b"0123456789")
    assert site.runs == 2


@pytest.mark.parametrize(
    "requested",
    [
        "bytes=0-9,20-29", "bytes=9-0", "bytes=-", "items=0-9", "bytes=0-9x", "bytes=" + "0-0," * 3000, "bytes=a-b",
        "bytes=99999999999999999999999-", "bytes", "",
    ],
)  # fmt: skip
async def test_other_ranges_go_to_the_app_and_leave_nothing(tmp_path: Path, requested: str) -> None:
    """Several at once, inverted, of another unit, thousands of tiny ones: what it says goes out as it is."""
    film, bare = Film(tmp_path), Film(tmp_path, partial_answers=False)
    bound, unbound = await film.get(range=requested), await bare.get(range=requested)
    assert (bound.status_code, len(bound.content)) == (unbound.status_code, len(unbound.content))
    assert (film.parts(), film.asked) == ([], [requested])


async def test_parts_are_bounded_in_number_and_in_bytes(tmp_path: Path) -> None:
    film = Film(tmp_path, max_body_bytes=400)
    for start in range(0, 2000, 10):
        answered = await film.get(range=f"bytes={start}-{start + 4}")
        assert answered.content == CONTENT[start : start + 5]
    assert len(film.parts()) == MAX_PARTS
    for start in range(0, 2000, 300):
        assert (await film.get(range=f"bytes={start}-{start + 199}")).content == CONTENT[start : start + 200]
    assert sum(last + 1 - first for first, last in film.parts()) <= 400


async def test_a_client_that_goes_through_a_film_has_a_moving_window(tmp_path: Path) -> None:
    """Parts that touch are one, and one is no longer than an entry may be."""
    film = Film(tmp_path, max_body_bytes=400)
    for start in range(0, 2000, 100):
        assert (await film.get(range=f"bytes={start}-{start + 99}")).content == CONTENT[start : start + 100]
    assert film.parts() == [(1600, 1999)]


async def test_a_crumb_is_not_worth_writing_all_of_it_anew(tmp_path: Path) -> None:
    film = Film(tmp_path)
    await film.get(range="bytes=0-1023")
    assert (await film.get(range="bytes=2000-2001")).content == CONTENT[2000:2002]
    assert film.parts() == [(0, 1023)]


@pytest.mark.parametrize("same", [True, False])
async def test_if_range_is_answered_from_a_part_of_this_representation_only(tmp_path: Path, same: bool) -> None:
    """A client with another representation gets the whole answer, which only the app has."""
    film = Film(tmp_path)
    etag = (await film.get(range="bytes=0-99")).headers["etag"]
    answered = await film.get(range="bytes=10-19", if_range=etag if same else '"other"')
    assert part_of(answered)[0] == (206 if same else 200)
    assert answered.content == (CONTENT[10:20] if same else CONTENT)
    assert film.runs == (1 if same else 2)


async def test_a_range_past_the_end_is_answered_by_the_app(tmp_path: Path) -> None:
    film = Film(tmp_path)
    await film.get(range="bytes=0-99")
    assert (await film.get(range="bytes=5000-")).status_code == 416
    assert film.parts() == [(0, 99)]


async def test_only_if_cached_gets_a_part_or_504(tmp_path: Path) -> None:
    film = Film(tmp_path)
    assert (await film.get(range="bytes=0-9", cache_control="only-if-cached")).status_code == 504
    await film.get(range="bytes=0-9")
    assert (await film.get(range="bytes=0-9", cache_control="only-if-cached")).content == CONTENT[:10]
    assert film.runs == 1


async def test_credentials_and_conditions_keep_out(tmp_path: Path) -> None:
    """Ranges of requests with credentials or conditions are never stored as parts for other clients."""
    film = Film(tmp_path)
    for fields in ({"cookie": "a=b"}, {"authorization": "Bearer x"}, {"if_none_match": '"x"'}, {"if_match": "*"}):
        await film.get(range="bytes=0-9", **fields)
    assert film.parts() == []


async def test_a_part_lives_no_longer_than_it_may(tmp_path: Path) -> None:
    film = Film(tmp_path)
    await film.get(range="bytes=0-99")
    film.engine.clock.now_ms += 61_000
    assert "hit" not in status_of(await film.get(range="bytes=0-9"))
    assert (await film.get(range="bytes=0-9", cache_control="no-cache")).content == CONTENT[:10]
    assert film.runs == 3


async def test_an_unsafe_request_outdates_the_parts(tmp_path: Path) -> None:
    film = Film(tmp_path)
    await film.get(range="bytes=0-99")
    await film.client.post("/items")
    assert film.parts() == []


async def test_a_whole_that_has_begun_is_completed(tmp_path: Path) -> None:
    """The rest alone is asked for, of this very representation."""
    film = Film(tmp_path)
    await film.get(range="bytes=0-999")
    whole = await film.get()
    assert (whole.status_code, whole.content, whole.headers["content-length"]) == (200, CONTENT, "2048")
    assert "content-range" not in whole.headers
    assert status_of(whole) == "Quaestor; fwd=partial; stored"
    assert film.asked == ["bytes=0-999", "bytes=1000-"]
    assert "hit" in status_of(await film.get())


async def test_another_version_is_sent_whole_instead(tmp_path: Path) -> None:
    film = Film(tmp_path)
    await film.get(range="bytes=0-999")
    film.path.write_bytes(b"short")
    assert (await film.get()).content == b"short"
    assert film.parts() == []


@pytest.mark.parametrize("wrong", ["etag", "place", "416", "size"])
async def test_parts_that_do_not_fit_are_fetched_as_a_whole(wrong: str) -> None:
    """An app that does not understand If-Range, or answers another range: the client is sent one whole, not two halves."""
    requests: list[str | None] = []

    async def handler(request: Request) -> Response:
        requests.append(request.headers.get("range"))
        fields = {"etag": '"v1"', "cache-control": "max-age=60"}
        if requests[-1] is None:
            return PlainTextResponse("w" * 20, headers=fields)
        if len(requests) == 1:
            return PlainTextResponse("a" * 10, 206, headers={**fields, "content-range": "bytes 0-9/20"})
        if wrong == "416":
            return PlainTextResponse("", 416, headers={"content-range": "bytes */5"})
        place = {"place": "bytes 5-14/20", "size": "bytes 10-19/30"}.get(wrong, "bytes 10-19/20")
        other = {"etag": '"v2"'} if wrong == "etag" else {}
        return PlainTextResponse("b" * 10, 206, headers={**fields, **other, "content-range": place})

    site = Site(handler, explicit=True, partial_answers=True)
    await site.get(range="bytes=0-9")
    assert (await site.get()).content == b"w" * 20
    assert requests == ["bytes=0-9", "bytes=10-", None]


async def test_an_error_instead_of_the_rest_is_an_error(tmp_path: Path) -> None:
    fails = False

    async def handler(request: Request) -> Response:
        fields = {"etag": '"v1"', "cache-control": "max-age=60, stale-if-error=600", "content-range": "bytes 0-9/20"}
        return PlainTextResponse("down", 503) if fails else PlainTextResponse("a" * 10, 206, headers=fields)

    site = Site(handler, explicit=True, partial_answers=True)
    await site.get(range="bytes=0-9")
    fails = True
    answered = await site.get()
    assert (answered.status_code, answered.content) == (503, b"down")


async def test_behind_the_proxy_only_what_is_missing_is_fetched() -> None:
    """Through real connections: what a download had when it was broken off is not fetched again."""
    body = bytes(range(200)) * 10

    def script(request: Asked) -> bytes:
        fields = ['ETag: "v1"', "Cache-Control: max-age=60"]
        ranged = request.of(b"range")
        if not ranged:
            return answer("200 OK", *fields, body=body)
        first, _, last = ranged[0].decode().removeprefix("bytes=").partition("-")
        piece = body[int(first) : int(last or len(body) - 1) + 1]
        place = f"Content-Range: bytes {first}-{int(first) + len(piece) - 1}/{len(body)}"
        return answer("206 Partial Content", *fields, place, body=piece)

    settings = Settings(explicit=True, grid=False, early_refresh=0.0, partial_answers=True)
    async with (
        scripted_origin(script) as origin,
        proxy(ProxyOptions(origin=origin.url), settings) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        begun = await client.get("/film", headers={"range": "bytes=0-1499"})
        whole = await client.get("/film")
        again = await client.get("/film", headers={"range": "bytes=700-1700"})
    assert (begun.content, whole.content, again.content) == (body[:1500], body, body[700:1701])
    assert [request.of(b"range") for request in origin.asked] == [[b"bytes=0-1499"], [b"bytes=1500-"]]
    assert origin.asked[1].of(b"if-range") == [b'"v1"']
