"""Partitions of the Cache Sketch, differences from an earlier sketch, and the kill switch, as clients meet them."""

from __future__ import annotations

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from quaestor.cache_sketch import MemoryCacheSketch, wire_format
from quaestor.cache_sketch.partitions import in_partition, token_of
from quaestor.cache_sketch.sizing import DEFAULT, HEADER_BYTES
from quaestor.caching import cached
from quaestor.errors import ConfigurationError
from quaestor.policy import RoutePolicy, fingerprint
from quaestor.read_path.structured import dictionary
from quaestor.settings import Settings
from tests.end_to_end.site import Site
from tests.hand_driven import reads

pytestmark = pytest.mark.anyio

PATH = "/quaestor/sketch"


def site_with_sketch(**settings: object) -> Site:
    """A site whose pages read the collections that their path names: `/a+b` reads shop.a and shop.b."""

    async def page(request: Request) -> Response:
        for name in request.url.path[1:].split("+"):
            reads(namespace=f"shop.{name}")
        return PlainTextResponse("x")

    site = Site(page, **settings)
    sketch = MemoryCacheSketch()
    site.engine.sketch = sketch  # type: ignore[assignment]
    site.engine.read_path.copies._sketch = site.engine.read_path.admission.announcement._sketch = sketch
    return site


def partition_of(answer: httpx.Response) -> str | None:
    _, _, rest = answer.headers["quaestor-ttl"].partition(";sketch=")
    return rest or None


def names(body: bytes, resource: str) -> bool:
    bits = body[HEADER_BYTES:]
    where = wire_format.positions(wire_format.digest(resource), DEFAULT)
    return all(bits[position // 8] >> position % 8 & 1 for position in where)


async def outdate(site: Site, resource: str, partition: str = "") -> None:
    now_ms, name = site.engine.clock.now_ms, in_partition(resource, partition)
    await site.engine.sketch.report_read(name, expires_at_ms=now_ms + 60_000, now_ms=now_ms)
    await site.engine.sketch.report_write([name], now_ms=now_ms)


def base(answer: httpx.Response) -> object:
    return dict(dictionary([answer.headers["quaestor-sketch"].encode()]) or {}).get("base")


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ((), {"/a": None, "/b": None, "/a+b": None, "/c": None}),
        (("shop.a",), {"/a": "shop.a", "/b": None, "/a+b": None, "/c": None}),
        (("x=shop.a", "x=shop.b"), {"/a": "x", "/b": "x", "/a+b": "x", "/c": None}),
        (("*", "x=shop.b"), {"/a": "shop.a", "/b": "x", "/a+b": None, "/c": "shop.c"}),
    ],
)
async def test_an_answer_names_the_partition_of_what_it_shows(
    declared: tuple[str, ...], expected: dict[str, str | None]
) -> None:
    """Of several partitions: none, so the union counts. On the miss, the hit and the 304; no name of a collection goes out."""
    site = site_with_sketch(sketch_partitions=declared)
    for path, name in expected.items():
        first = await site.get(path)
        answers = (first, await site.get(path), await site.get(path, if_none_match=first.headers["etag"]))
        assert {partition_of(answer) for answer in answers} == {name and token_of(name)}
        assert all("shop" not in answer.headers["quaestor-ttl"] for answer in answers)


async def test_a_route_names_the_partition_of_its_answers() -> None:
    """The route's partition counts for all collections, and equals the setting's group of that name.

    Other routes use the setting.
    """
    routes = {"/a*": cached(sketch_partition="x"), "/c": cached(sketch_partition="y")}
    site = site_with_sketch(sketch_partitions=("x=shop.b", "shop.c"), routes=routes)
    expected = {"/a": "x", "/a+b": "x", "/b": "x", "/c": "y", "/d": None}
    for path, name in expected.items():
        first = await site.get(path)
        answers = (first, await site.get(path), await site.get(path, if_none_match=first.headers["etag"]))
        assert {partition_of(answer) for answer in answers} == {name and token_of(name)}
        assert site.runs == 1 + list(expected).index(path)


async def test_an_outdated_answer_is_named_in_the_partition_of_its_route() -> None:
    """Beside the union, which tells of everything."""
    site = site_with_sketch(routes={"/a": cached(sketch_partition="x")})
    for path in ("/a", "/b"):
        await site.get(path)
    now_ms = site.engine.clock.now_ms
    dependents = await site.engine.index.claim(list(site.engine.registry.leases), now_ms=now_ms)
    await site.engine.sketch.report_write([dependent.resource for dependent in dependents], now_ms=now_ms)
    own, union = await site.get(f"{PATH}/{token_of('x')}"), await site.get(PATH)
    assert (names(own.content, "/a"), names(own.content, "/b")) == (True, False)
    assert (names(union.content, "/a"), names(union.content, "/b")) == (True, True)


def test_after_a_deploy_that_moves_a_route_its_answers_are_made_anew() -> None:
    """No process hands out an entry whose copies are looked up elsewhere than its own declaration says."""
    moved = {fingerprint(cached(sketch_partition=name).apply(RoutePolicy())) for name in ("x", "y")}
    assert len(moved | {fingerprint(cached(tags=["x"]).apply(RoutePolicy())), fingerprint(RoutePolicy())}) == 4


@pytest.mark.parametrize("declared", ["shop", "shop.", "=shop.a", "x y=shop.a", "x=*", "a=b=shop.a", "shop.a#", ""])
async def test_an_unknown_partition_is_refused_and_named(declared: str) -> None:
    with pytest.raises(ConfigurationError, match="sketch_partitions"):
        site_with_sketch(sketch_partitions=(declared,))


async def test_a_collection_is_in_one_partition() -> None:
    with pytest.raises(ConfigurationError, match="twice"):
        site_with_sketch(sketch_partitions=("x=shop.a", "y=shop.a"))


async def test_each_partition_has_an_address_and_the_union_has_them_all() -> None:
    site, token = site_with_sketch(), token_of("shop.a")
    await outdate(site, "/in", token)
    await outdate(site, "/beside")
    own, union = await site.get(f"{PATH}/{token}"), await site.get(PATH)
    assert (names(own.content, "/in"), names(own.content, "/beside")) == (True, False)
    assert (names(union.content, "/in"), names(union.content, "/beside")) == (True, True)
    assert own.headers["etag"] != union.headers["etag"]
    site.engine.clock.now_ms += 5_000
    again = await site.get(f"{PATH}/{token}", if_none_match=own.headers["etag"])
    assert again.status_code == 304
    assert f"made={site.engine.clock.now_ms}," in again.headers["quaestor-sketch"]


async def test_invented_partitions_get_the_union_and_are_not_kept() -> None:
    """The union is right for holders of copies of a partition lost since, and invented names fill no memory."""
    site = site_with_sketch()
    await outdate(site, "/beside")
    for n in range(200):
        assert names((await site.get(f"{PATH}/{n:08x}")).content, "/beside")
    assert site.app._endpoints.sketch._sources._partitions == {}


@pytest.mark.parametrize("below", ["/", "/abc", "/ABCDEF01", "/0a1b2c3d/", "/0a1b2c3d4", "x", "/../x"])
async def test_other_addresses_belong_to_the_application(below: str) -> None:
    assert (await site_with_sketch().get(PATH + below)).text == "x"


async def test_a_client_that_names_its_version_gets_the_difference() -> None:
    site = site_with_sketch()
    for n in range(3_000):
        await outdate(site, f"/{n}")
    whole = await site.get(PATH, accept_encoding="gzip")
    version = whole.headers["etag"][1:33]
    site.engine.clock.now_ms += 1_000
    await outdate(site, "/new")
    answer = await site.get(f"{PATH}?have={version}", accept_encoding="gzip")
    full = await site.get(PATH, accept_encoding="identity")
    assert base(answer) == version
    assert int(answer.headers["content-length"]) < 200
    bits = int.from_bytes(whole.content[HEADER_BYTES:], "little") ^ int.from_bytes(
        answer.content[HEADER_BYTES:], "little"
    )
    assert answer.content[:HEADER_BYTES] + bits.to_bytes(DEFAULT.size_bytes, "little") == full.content
    assert answer.headers["etag"][1:33] == full.headers["etag"][1:33] != version
    assert answer.headers["etag"] != full.headers["etag"]


@pytest.mark.parametrize("have", ["0" * 32, "x", "", "A" * 32, "0" * 31, '"' + "0" * 30])
async def test_a_client_that_names_an_unknown_version_gets_the_whole(have: str) -> None:
    site = site_with_sketch()
    await outdate(site, "/a")
    answer = await site.get(f"{PATH}?have={have}")
    assert base(answer) is None
    assert names(answer.content, "/a")


async def test_a_difference_that_is_no_smaller_is_not_sent() -> None:
    """No difference is sent without a coding, or from the version that the client has: that is a 304 or the whole."""
    site = site_with_sketch()
    await outdate(site, "/a")
    version = (await site.get(PATH)).headers["etag"][1:33]
    assert base(await site.get(f"{PATH}?have={version}")) is None
    site.engine.clock.now_ms += 1_000
    await outdate(site, "/b")
    assert base(await site.get(f"{PATH}?have={version}", accept_encoding="identity")) is None
    await site.engine.sketch.saturate(site.engine.clock.now_ms + 9_000)
    site.engine.clock.now_ms += 1_000
    whole = await site.get(f"{PATH}?have={version}", accept_encoding="gzip")
    assert whole.content == wire_format.saturated(DEFAULT)


async def test_cdns_may_keep_it_for_its_second_and_not_what_was_made_for_one_client() -> None:
    site = site_with_sketch()
    assert (await site.get(PATH)).headers["cdn-cache-control"] == "max-age=1"
    assert "cdn-cache-control" not in (await site.get(f"{PATH}?nonce=1")).headers


async def test_the_kill_switch_takes_no_restart() -> None:
    """Every client hears of it with its next sketch; also of a partition; and when it is switched on again."""
    site, token = site_with_sketch(), token_of("shop.a")
    await outdate(site, "/in", token)
    for off in (False, True, False):
        await site.engine.sketch.switch(off=off)
        site.engine.clock.now_ms += 1_000
        for path in (PATH, f"{PATH}/{token}"):
            answer = await site.get(path)
            assert (", off" in answer.headers["quaestor-sketch"]) is off
            assert names(answer.content, "/anything") is off


@pytest.mark.parametrize(
    "setting",
    [{"sketch_entries": 0}, {"sketch_false_positives": 0.0}, {"sketch_false_positives": 1.0}, {"sketch_bytes": 99},
     {"sketch_bytes": 40_000}, {"sketch_partitions": "shop.a"}],
    ids=str,
)  # fmt: skip
def test_settings_out_of_range_are_refused_and_named(setting: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(setting))):
        Settings(**setting)  # type: ignore[arg-type]
