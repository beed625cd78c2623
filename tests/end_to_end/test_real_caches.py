"""Real caches before an origin that sends the middleware's fields: which answers each keeps, and which a purge removes."""

from __future__ import annotations

import asyncio
import re
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import httpx
import pytest

from benchmarks.setups.faults.proxy import Links
from benchmarks.setups.real_caches import TOKEN, RealCache, each_cache
from quaestor.observability.telemetry import Telemetry
from quaestor.redis.clients import shared_client
from quaestor.store.outbox_redis import RedisOutbox
from quaestor.testing.servers import HOST, Server, free_port, running
from tests.end_to_end.origin import Answer, Origin, origin
from tests.support import PATIENCE_S, eventually

pytestmark = [pytest.mark.anyio, each_cache]
LIVES_S = 600
COMPLAINT = re.compile(r"^(?:.*\| )?(?:WARNING|ERROR|FATAL): .*|.*\[(?:warn|error|emerg)\].*", re.MULTILINE)


@pytest.fixture(scope="module")
def behind() -> Iterator[Origin]:
    with origin(free_port()) as there:
        yield there


@pytest.fixture(scope="module")
def cache(kind: RealCache, behind: Origin) -> Iterator[Server]:
    with running(partial(kind.start, app_port=behind.port), kind.name) as server:
        yield server


@pytest.fixture
async def web(cache: Server) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=cache.url, timeout=PATIENCE_S, trust_env=False) as client:
        yield client


@pytest.fixture
def path(prefix: str) -> str:
    """A path of this test's own."""
    return f"/{prefix}"


@pytest.fixture
async def outbox(redis_url: str, prefix: str) -> AsyncIterator[RedisOutbox]:
    client = shared_client(redis_url, timeout_s=PATIENCE_S)
    yield RedisOutbox(client, deployment=prefix)
    await client.aclose()


def until_ms() -> int:
    return int(time.time() * 1_000) + LIVES_S * 1_000


def keepable(kind: RealCache, *, lives_s: int = LIVES_S, spent_s: int = 0, **headers: str) -> Answer:
    """An answer as the middleware sends it to this cache.

    spent_s: of its lifetime, in the application's own cache.
    """
    until_s = int(time.time()) + lives_s - spent_s
    delivered = kind.delivery("http://unused").lifetime_headers(lives_s=lives_s, until_s=until_s)
    fields = {name.decode(): value.decode() for name, value in delivered} | {"age": str(spent_s)}
    fields |= {"cdn-cache-control": f"max-age={lives_s}", "cache-control": "public, max-age=0, must-revalidate"}
    return Answer(fields | headers)


async def bodies(web: httpx.AsyncClient, path: str, times: int = 2, **headers: str) -> list[int]:
    """The numbers of the fetches that these requests were answered by."""
    answers = [await web.get(path, headers=headers) for _ in range(times)]
    return [int(answer.text.rpartition("#")[2]) for answer in answers]


def test_the_real_program_takes_the_configuration(kind: RealCache, cache: Server) -> None:
    """As it is printed, with nothing to complain about."""
    environment = {"PATH": "/usr/sbin:/usr/bin:/bin", **cache.environment}
    done = subprocess.run(kind.check(cache), env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert COMPLAINT.findall(done.stdout + done.stderr) == []


async def test_an_answer_that_may_be_kept_is_a_hit_without_the_fields_for_caches(
    kind: RealCache, behind: Origin, web: httpx.AsyncClient, path: str
) -> None:
    behind.answers[path] = keepable(kind, etag='"v1"')
    assert await bodies(web, path) == [1, 1]
    answer = await web.get(path)
    for name in ("cdn-cache-control", "x-accel-expires", "surrogate-control", "xkey"):
        assert name not in answer.headers
    assert not [name for name in answer.headers if name.startswith("quaestor")]
    assert answer.headers["cache-control"] == "public, max-age=0, must-revalidate"
    again = await web.get(path, headers={"if-none-match": '"v1"'})
    assert (again.status_code, behind.count(path)) == (304, 1)
    assert (await web.head(path)).headers["etag"] == '"v1"'


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"cache-control": "public, max-age=600, s-maxage=600"},
        {"expires": "Fri, 01 Jan 2100 00:00:00 GMT"},
        {"last-modified": "Fri, 01 Jan 2010 00:00:00 GMT"},
    ],
    ids=str,
)
async def test_answers_that_may_not_be_shared_are_fetched_each_time(
    kind: RealCache, behind: Origin, web: httpx.AsyncClient, path: str, headers: dict[str, str]
) -> None:
    """Nothing else counts: not Cache-Control, not Expires, no defaults of the cache."""
    behind.answers[path] = Answer(headers)
    assert await bodies(web, path, 3) == [1, 2, 3]


async def test_answers_that_set_a_cookie_are_not_kept(
    kind: RealCache, behind: Origin, web: httpx.AsyncClient, path: str
) -> None:
    behind.answers[path] = keepable(kind, **{"set-cookie": "a=b"})
    numbers = []
    for _ in range(2):
        web.cookies.clear()
        numbers += await bodies(web, path, 1)
    assert numbers == [1, 2]


@pytest.mark.parametrize("known", [{"authorization": "Basic YTpi"}, {"cookie": "0"}, {"cookie": "a=b"}], ids=str)
async def test_requests_of_known_users_are_passed_on(
    kind: RealCache, behind: Origin, web: httpx.AsyncClient, path: str, known: dict[str, str]
) -> None:
    """Requests of known users neither get answers stored for others, nor leave answers for them."""
    behind.answers[path] = keepable(kind)
    assert await bodies(web, path, 1, **known) == [1]
    assert await bodies(web, path) == [2, 2]
    assert await bodies(web, path, 1, **known) == [3]
    assert await bodies(web, path, 1) == [2]


async def test_a_lifetime_counts_from_when_the_application_stored_the_answer_and_is_over_after_it(
    kind: RealCache, behind: Origin, web: httpx.AsyncClient, path: str
) -> None:
    """An answer that has spent it all is fetched each time; another goes when it is over."""
    behind.answers[f"{path}/over"] = keepable(kind, lives_s=50, spent_s=60)
    assert await bodies(web, f"{path}/over", 3) == [1, 2, 3]
    behind.answers[path] = keepable(kind, lives_s=2)
    await web.get(path)

    async def another() -> bool:
        return await bodies(web, path, 1) != [1]

    await eventually(another)


async def test_a_purge_by_url_removes_that_url_and_nothing_else(
    kind: RealCache, behind: Origin, cache: Server, web: httpx.AsyncClient, path: str
) -> None:
    """As the client spelled it that fetched it, for that host alone; twice is harmless, and so is what nobody has heard of."""
    spelled = ["", "?a=1&b=2", "?b=2&a=1", "?q=%C3%A9%20x", "/%7Euser/a%2Fb", "?q=a|b^[1]{2}"]
    behind.default = keepable(kind)
    delivery = kind.delivery(cache.url)

    async def number(spelling: str, host: str = f"{HOST}:{cache.port}") -> int:
        raw: dict[str, Any] = {"extensions": {"target": (path + spelling).encode()}, "headers": {"host": host}}
        answer = await web.send(web.build_request("GET", "/", **raw))
        return int(answer.text.rpartition("#")[2])

    before = {spelling: await number(spelling) for spelling in spelled}
    elsewhere = await number("", "b.example")
    assert {spelling: await number(spelling) for spelling in spelled} == before
    for purged in spelled:
        for _ in range(2):
            await delivery.purge(tags=["ignored"], urls=[f"{cache.url}{path}{purged}"])
        after = {other: await number(other) for other in spelled}
        assert {other for other in spelled if after[other] != before[other]} == {purged}
        before = after
    assert await number("", "b.example") == elsewhere
    await delivery.purge(tags=[], urls=[f"http://b.Example{path}", f"{cache.url}{path}/unknown"])
    assert elsewhere not in {await number("", host) for host in ("B.EXAMPLE", "b.example")}
    assert {spelling: await number(spelling) for spelling in spelled} == before
    await delivery.aclose()


async def test_no_variant_outlives_a_purge(
    kind: RealCache, behind: Origin, cache: Server, web: httpx.AsyncClient, path: str
) -> None:
    """A cache that can only purge one of several keeps none of them."""
    behind.answers[path] = keepable(kind, vary="accept-language")
    delivery = kind.delivery(cache.url)
    languages = ("de", "en", "fr")
    before = [(await bodies(web, path, **{"accept-language": language}))[1] for language in languages]
    await delivery.purge(tags=[], urls=[cache.url + path])
    after = [(await bodies(web, path, 1, **{"accept-language": language}))[0] for language in reversed(languages)]
    assert not set(before) & set(after)
    await delivery.aclose()


async def test_a_purge_is_effective_when_it_returns(
    kind: RealCache, behind: Origin, cache: Server, web: httpx.AsyncClient, path: str
) -> None:
    """A hundred writes, each followed by its purge: the next answer is never the old one."""
    delivery = kind.delivery(cache.url)
    behind.answers[path] = keepable(kind)
    for number in range(1, 101):
        assert await bodies(web, path) == [number, number]
        await delivery.purge(tags=[], urls=[cache.url + path])
    await delivery.aclose()


async def test_of_many_requests_for_what_was_purged_one_goes_to_the_application(
    kind: RealCache, behind: Origin, cache: Server, web: httpx.AsyncClient, path: str
) -> None:
    """The others wait for its answer. Traffic Server lets all of them through; the application's own cache runs one handler."""
    if kind.name == "ats":
        pytest.skip("Traffic Server fetches for each")
    delivery = kind.delivery(cache.url)
    behind.answers[path] = keepable(kind)
    assert await bodies(web, path) == [1, 1]
    await delivery.purge(tags=[], urls=[cache.url + path])
    with behind.held(path) as came:
        waiting = [asyncio.create_task(bodies(web, path, 1)) for _ in range(10)]
        await asyncio.to_thread(came.wait, PATIENCE_S)
    assert await asyncio.gather(*waiting) == [[2]] * 10
    assert behind.count(path) == 2
    await delivery.aclose()


async def test_everything_is_purged_or_it_is_said_that_it_is_not(
    kind: RealCache, behind: Origin, cache: Server, web: httpx.AsyncClient, path: str, outbox: RedisOutbox
) -> None:
    """For when nobody knows any more what was handed out: by the tag of the whole deployment, which none of them knows."""
    telemetry = Telemetry()
    failures: list[str] = []
    telemetry.hooks.failures.append(lambda failure: failures.append(failure.name))
    for name in "abc":
        behind.answers[f"{path}/{name}"] = keepable(kind)
        await bodies(web, f"{path}/{name}", 1)
    delivery = kind.delivery(cache.url)
    delivery.begin(outbox, telemetry=telemetry, repurge_after_ms=60_000)
    await (await delivery.put(tags=["everything"], urls=[], until_ms=until_ms()))()
    after = [(await bodies(web, f"{path}/{name}"))[0] for name in "abc"]
    assert after == ([2, 2, 2] if kind.everything else [1, 1, 1])
    assert ("cdn.not_purged" in failures) is not kind.everything
    await delivery.aclose()


async def test_a_stranger_cannot_purge_and_the_adapter_says_what_to_do(
    kind: RealCache, behind: Origin, cache: Server, web: httpx.AsyncClient, path: str
) -> None:
    behind.answers[path] = keepable(kind)
    await web.get(path)
    for token in ({}, {"quaestor-purge-token": "wrong-token"}, {"quaestor-purge-token": TOKEN.upper()}):
        for everything in ({}, {"quaestor-purge-everything": "1"}):
            answer = await web.request("PURGE", path, headers=token | everything)
            assert answer.status_code == 403, answer.headers
    assert await bodies(web, path) == [1, 1]
    place = kind.place(f"http://{HOST}:{behind.port}")
    async with place.connect() as connection:
        answered = await connection.send(place.targets(tags=[], urls=[cache.url + path]))
    assert "does not purge" in getattr(answered, "reason", "")
    await web.get(path + "/else", headers={"quaestor-purge-token": TOKEN})
    assert not [name for name in behind.asked[-1].headers if name.lower().startswith("quaestor")]


async def test_a_purge_that_was_lost_on_the_way_is_sent_again(
    kind: RealCache, behind: Origin, cache: Server, web: httpx.AsyncClient, path: str, outbox: RedisOutbox, links: Links
) -> None:
    """A lost purge is sent again, also by another process if the first has died meanwhile."""
    behind.answers[path] = keepable(kind)
    await web.get(path)
    link = links.to(cache.port)
    link.reset()
    first = kind.delivery(f"http://{HOST}:{link.port}")
    first.begin(outbox, telemetry=Telemetry(), repurge_after_ms=60_000)
    await first.put(tags=["t"], urls=[cache.url + path], until_ms=until_ms())
    assert await bodies(web, path, 1) == [1]
    await first.aclose()
    link.pass_()
    second = kind.delivery(f"http://{HOST}:{link.port}")
    second.begin(outbox, telemetry=Telemetry(), repurge_after_ms=60_000)

    async def gone() -> bool:
        return await bodies(web, path, 1) != [1]

    await eventually(gone)
    await second.aclose()


async def test_a_purge_is_repeated_for_what_was_on_its_way(
    kind: RealCache, behind: Origin, cache: Server, web: httpx.AsyncClient, path: str, outbox: RedisOutbox
) -> None:
    """An old answer that the cache stores after the first purge goes by the second one."""
    delivery = kind.delivery(cache.url)
    delivery.begin(outbox, telemetry=Telemetry(), repurge_after_ms=1_000)
    (queue,) = [f"{place.name} {place.address}" for place in delivery.places]
    behind.answers[path] = keepable(kind)
    for _ in range(20):  # the machine may stand still for longer than the pause
        await (await delivery.put(tags=["t"], urls=[cache.url + path], until_ms=until_ms()))()
        (number,) = await bodies(web, path, 1)  # stored only now: it had left before
        if (await outbox.size(queue)).waiting:
            break
    else:
        pytest.fail("it was repeated before anything could be on its way, each time")

    async def gone() -> bool:
        return await bodies(web, path, 1) != [number]

    await eventually(gone)
    await delivery.aclose()


async def test_a_cache_that_was_started_again_takes_purges_of_what_it_still_has(
    kind: RealCache, behind: Origin, path: str, outbox: RedisOutbox
) -> None:
    """A purge put while the cache was away is done when it is back, also in a cache that keeps its answers on disk."""
    behind.default = keepable(kind)
    with running(partial(kind.start, app_port=behind.port), kind.name) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE_S, trust_env=False) as web:
            for path_ in (path, f"{path}/other"):
                assert await bodies(web, path_) == [1, 1]
        server.stop()
        delivery = kind.delivery(server.url)
        delivery.begin(outbox, telemetry=Telemetry(), repurge_after_ms=60_000)
        wait = await delivery.put(tags=["t"], urls=[server.url + path], until_ms=until_ms())
        server.start()
        await wait()
        async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE_S, trust_env=False) as web:
            assert await bodies(web, path) == [2, 2]
            assert not kind.disk or await bodies(web, f"{path}/other", 1) == [1]
        await delivery.aclose()
