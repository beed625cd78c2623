"""The admin API: its functions with the token, and its refusals without it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio.to_thread
import httpx
import pymongo
import pytest
from fastapi import FastAPI

from quaestor.admin import AdminApi, AdminToken
from quaestor.admin.registered_urls import MemoryUrls, RedisUrls, RegisteredUrls
from quaestor.admin.status_text import text
from quaestor.app import Quaestor
from quaestor.cli import main
from quaestor.middleware import QuaestorMiddleware
from quaestor.proxy.options import ProxyOptions
from quaestor.proxy.server import application, configuration
from tests.end_to_end.scripted_origin import PLAIN, ScriptedOrigin, answer, scripted_origin, serving
from tests.support import eventually

pytestmark = pytest.mark.anyio

TOKEN = "5t0Zk_v1r-0mXbQeYw8LhN2dPfJ7sUaC"
BEARER = {"authorization": f"Bearer {TOKEN}"}
API = "/quaestor/admin"
FRESH = answer("200 OK", "Cache-Control: max-age=600", 'Cache-Groups: "prices"', body=b"x")


@asynccontextmanager
async def admin(script: bytes = FRESH) -> AsyncIterator[tuple[httpx.AsyncClient, ScriptedOrigin]]:
    async with scripted_origin(lambda _: script) as origin:
        app = application(ProxyOptions(origin=origin.url), PLAIN, token=AdminToken(TOKEN))
        async with serving(configuration(app)) as url, httpx.AsyncClient(base_url=url) as client:
            yield client, origin


async def cached(client: httpx.AsyncClient, path: str) -> bool:
    return "hit" in (await client.get(path)).headers["cache-status"]


async def test_without_the_token_every_path_gets_the_same_refusal() -> None:
    async with admin() as (client, origin):
        for path in ("/status", "/purge", "/nothing", "", "/../admin/status"):
            for headers in ({}, {"authorization": "Bearer " + TOKEN[:-1]}, {"authorization": f"Basic {TOKEN}"}):
                got = await client.get(API + path, headers=headers)
                assert (got.status_code, got.json()["detail"]) == (
                    401,
                    "A bearer token is needed.",
                ) or got.status_code == 429
                assert got.headers["cache-control"] == "no-store"
        assert origin.asked == []


async def test_guessers_are_turned_away_and_do_not_keep_out_who_has_the_token() -> None:
    """Behind a load balancer they have the same address."""
    async with admin() as (client, _):
        statuses = [
            (await client.get(f"{API}/status", headers={"authorization": f"Bearer {n}"})).status_code for n in range(12)
        ]
        assert statuses == [401] * 10 + [429] * 2
        locked = await client.get(f"{API}/status", headers={"authorization": "Bearer 13"})
        assert (locked.status_code, int(locked.headers["retry-after"]) <= 60) == (429, True)
        assert (await client.get(f"{API}/status", headers=BEARER)).status_code == 200


async def test_it_is_off_unless_there_is_a_token() -> None:
    async with scripted_origin(lambda _: answer("404 Not Found")) as origin:
        app = application(ProxyOptions(origin=origin.url), PLAIN)
        async with serving(configuration(app)) as url, httpx.AsyncClient(base_url=url) as client:
            assert (await client.get(f"{API}/status", headers=BEARER)).status_code == 404
            assert len(origin.asked) == 1, "the path is the origin's"


async def test_pages_in_browsers_have_no_business_here() -> None:
    async with admin() as (client, _):
        origin = {"origin": "https://evil.example", "access-control-request-method": "POST"}
        for method, path in (("OPTIONS", "/purge"), ("GET", "/status")):
            got = await client.request(method, API + path, headers=BEARER | origin)
            assert not any(name.startswith("access-control") for name in got.headers)
        simple = await client.post(
            f"{API}/purge", headers=BEARER | {"content-type": "text/plain"}, content='{"all": true}'
        )
        assert simple.status_code == 415


async def test_status_tells_how_it_is_doing() -> None:
    async with admin() as (client, _):
        await client.get("/a")
        await client.get("/a")
        shown = (await client.get(f"{API}/status", headers=BEARER)).json()
        assert (shown["serving"], shown["lagging"], shown["mode"], shown["grid"]) == (True, [], "none", None)
        assert shown["counts"]["requests"]["hit"] == 1


async def test_status_tells_what_a_registration_and_an_entry_cost(mongo_url: str, prefix: str) -> None:
    """On average; the cells say it once a second."""
    app = FastAPI()
    quaestor = Quaestor(heartbeat_ms=20)
    app.add_middleware(QuaestorMiddleware, quaestor=quaestor)
    listening = pymongo.AsyncMongoClient[dict[str, Any]](mongo_url, event_listeners=[quaestor.capture])
    await listening[prefix].items.insert_many([{"_id": key, "a": 1} for key in range(20)])

    @app.get("/items")
    async def items() -> list[dict[str, Any]]:
        return await listening[prefix].items.find({"a": 1}).to_list()

    site = AdminApi(app, quaestor=quaestor, token=AdminToken(TOKEN))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(site), base_url="http://site") as client:
        try:
            await eventually(lambda: cached(client, "/items"))

            async def shown() -> Any:
                return (await client.get(f"{API}/status", headers=BEARER)).json()

            async def known() -> bool:
                return bool((await shown())["registration_bytes"])

            await eventually(known)
            status = await shown()
            assert status["registration_bytes"] > 20 * 100, "a member is about 120 bytes"
            lines = {line.split("  ")[0]: line.split()[-1] for line in text(status).splitlines()}
            assert int(lines["bytes per registration"].replace(",", "")) == status["registration_bytes"]
            assert int(lines["bytes per entry"].replace(",", "")) > 100
        finally:
            await quaestor.stop()
            await listening.drop_database(prefix)
            await listening.close()


async def test_entries_tells_whether_a_url_is_cached_and_until_when() -> None:
    async with admin() as (client, _):
        ask = {"url": f"{str(client.base_url).rstrip('/')}/a?x=1"}
        absent = (await client.get(f"{API}/entries", headers=BEARER, params=ask)).json()
        assert absent["cached"] is False
        await client.get("/a?x=1")
        shown = (await client.get(f"{API}/entries", headers=BEARER, params=ask)).json()
        assert (shown["cached"], shown["status"], shown["body_bytes"]) == (True, 200, 1)
        assert 590 <= shown["ttl_s"] <= 600


@pytest.mark.parametrize("by", ["url", "path", "group", "all"])
async def test_answers_that_only_a_lifetime_guards_go_by_url_group_or_all(by: str) -> None:
    async with admin() as (client, _):
        base = str(client.base_url).rstrip("/")
        purge: Any = {
            "url": {"urls": [f"{base}/a"]},
            "path": {"urls": ["/a"]},
            "group": {"groups": [{"origin": base, "name": "prices"}]},
            "all": {"all": True},
        }[by]
        await client.get("/a")
        await client.get("/b")
        assert await cached(client, "/a")
        done = await client.post(f"{API}/purge", headers=BEARER, json=purge)
        assert done.status_code == 200, done.text
        assert not await cached(client, "/a")
        assert await cached(client, "/b") is (by in ("url", "path"))
        await eventually(lambda: cached(client, "/a"))  # what is stored afterwards, be it a millisecond, is good


async def test_explain_says_how_a_query_is_treated() -> None:
    async with admin() as (client, _):
        ask = {"filter": '{"a": 1}', "collection": "d.c", "sort": "b,-_id", "limit": "3"}
        shown = (await client.get(f"{API}/explain", headers=BEARER, params=ask)).json()
        assert (shown["match"], shown["cacheable"]) == ("exact", True)


@pytest.mark.parametrize("named", [True, False], ids=["by the setting", "of the captured client"])
async def test_explain_looks_the_collection_up_in_the_application_s_database(
    mongo_url: str, prefix: str, named: bool
) -> None:
    """The explanation includes the collection's compound indexes, collation and kind; afterwards nothing is tracked for
    it.
    """
    quaestor = Quaestor(mongo_url=mongo_url if named else None, grid=False, explicit=True)
    listening = pymongo.AsyncMongoClient[dict[str, Any]](mongo_url, event_listeners=[quaestor.capture])
    database = listening[prefix]
    await database.c.create_index([("kind", 1), ("rank", 1)])
    await database.create_collection("german", collation={"locale": "de"})
    await database.create_collection("log", capped=True, size=4096)
    await database.create_collection("shown", viewOn="c", pipeline=[{"$match": {"kind": "a"}}])
    app = AdminApi(FastAPI(), quaestor=quaestor, token=AdminToken(TOKEN))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://site") as client:

        async def shown(collection: str, **ask: str) -> Any:
            ask = {"filter": '{"kind": "a"}', "collection": f"{prefix}.{collection}"} | ask
            return (await client.get(f"{API}/explain", headers=BEARER, params=ask)).json()

        ordered = await shown("c", projection='{"name": 1}')
        assert (ordered["looked_up"], ordered["fields"], ordered["remark"]) == (True, "kind, name, rank", None)
        assert "collation 'de'" in (await shown("german"))["reason"]
        assert (await shown("shown"))["namespace"] == f"{prefix}.c"
        nameless = (await client.get(f"{API}/explain", headers=BEARER, params={"filter": "{}"})).json()
        assert nameless["looked_up"] is False
        assert "no collection is named" in nameless["remark"]
    await listening.drop_database(prefix)
    await listening.close()


async def test_explain_says_so_when_nobody_could_look() -> None:
    """A proxy without a database, and one whose database is away: explained as a plain collection, and that is in the answer."""
    async with admin() as (client, _):
        ask = {"filter": '{"a": 1}', "collection": "d.c"}
        shown = (await client.get(f"{API}/explain", headers=BEARER, params=ask)).json()
        assert shown["looked_up"] is False
        assert "nobody could look: no MongoDB to watch" in shown["remark"]
    away = Quaestor(mongo_url="mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=200", grid=False, explicit=True)
    app = AdminApi(FastAPI(), quaestor=away, token=AdminToken(TOKEN))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://site") as client:
        shown = (await client.get(f"{API}/explain", headers=BEARER, params=ask)).json()
        assert (shown["looked_up"], shown["match"]) == (False, "exact")
        assert "cannot list the collections of d" in shown["remark"]


async def test_registrations_are_kept_shown_and_removed() -> None:
    async with admin() as (client, _):
        queries = [{"collection": "d.items", "filter": {"at": {"$date": "2020-01-01T00:00:00Z"}}}]
        put = await client.post(f"{API}/registrations", headers=BEARER, json={"url": "/a?c=1&b=2", "queries": queries})
        assert put.json() == {"url": "/a?b=2&c=1", "queries": 1, "tags": [], "not_cached": []}
        shown = (await client.get(f"{API}/registrations", headers=BEARER, params={"url": "/a?b=2&c=1"})).json()
        assert shown["queries"] == queries
        gone = await client.delete(f"{API}/registrations", headers=BEARER, params={"url": "/a?c=1&b=2"})
        assert gone.json()["removed"] is True
        assert (await client.get(f"{API}/status", headers=BEARER)).json()["registered_urls"] == 0


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "sentence"),
    [
        ("POST", "/purge", b"", 400, "not JSON"),
        ("POST", "/purge", b"[" * 100_000, 400, "not JSON"),
        ("POST", "/purge", b"[]", 400, "a JSON object"),
        ("POST", "/purge", b"{}", 400, "nothing to purge"),
        ("POST", "/purge", b'{"all": "yes"}', 400, "true or false"),
        ("POST", "/purge", b'{"every": 1}', 400, "unknown: every"),
        ("POST", "/purge", b'{"urls": "/a"}', 400, "urls is an array"),
        ("POST", "/purge", b'{"urls": [1]}', 400, "urls holds texts"),
        ("POST", "/purge", b'{"urls": ["a"]}', 400, "neither a path"),
        ("POST", "/purge", b'{"urls": ["/a\\u0000"]}', 400, "printable"),
        ("POST", "/purge", b'{"groups": [{"name": "a"}]}', 400, "a group is"),
        ("POST", "/purge", b'{"tags": ["a"]}', 400, "no MongoDB"),
        ("POST", "/purge", b'{"collections": ["d.c"]}', 400, "no MongoDB"),
        ("POST", "/purge", json.dumps({"urls": ["/a"] * 1001}).encode(), 400, "at most 1000"),
        ("POST", "/purge", b" " * 300_000, 413, "more than"),
        ("POST", "/registrations", b'{"url": "/a"}', 400, "an array"),
        ("POST", "/registrations", b'{"url": "/a", "queries": [{}]}', 400, "collection is a name"),
        ("POST", "/registrations", b'{"url": 1, "queries": []}', 400, "url is a text"),
        ("POST", "/registrations", b'{"url": "/a", "queries": [{"collection": "d.c", "filter": {"$foo": 1}}]}', 400, "foo"),
        ("POST", "/sketch", b"{}", 400, 'the body is {"off": true}'),
        ("POST", "/sketch", b'{"off": 1}', 400, 'the body is {"off": true}'),
        ("POST", "/sketch", b'{"off": true, "on": false}', 400, 'the body is {"off": true}'),
        ("GET", "/entries", b"", 400, "url is missing"),
        ("GET", "/entries?url=/a", b"", 400, "absolute"),
        ("GET", "/entries?url=http://a/&url=b", b"", 400, "more than once"),
        ("GET", "/entries?url=http://a/&x=1", b"", 400, "unknown parameter x"),
        ("GET", "/explain?filter={", b"", 400, "not (extended) JSON"),
        ("GET", "/explain?filter=%ff", b"", 400, "query string"),
        ("GET", "/explain?filter={}&limit=x", b"", 400, "limit is a number"),
        ("GET", "/explain?" + "a=1&" * 100, b"", 400, "query string"),
        ("GET", "/explain?filter=" + "[" * 5000, b"", 400, ""),
        ("GET", "/purge", b"", 405, "Not GET"),
        ("GET", "/nothing", b"", 404, "nothing here"),
        ("DELETE", "/registrations", b"", 400, "url is missing"),
    ],
)  # fmt: skip
async def test_bad_calls_are_refused_in_a_sentence(
    method: str, path: str, body: bytes, status: int, sentence: str
) -> None:
    async with admin() as (client, _):
        headers = BEARER | ({"content-type": "application/json"} if method == "POST" else {})
        got = await client.request(method, API + path, headers=headers, content=body or None)
        assert (got.status_code, got.headers["content-type"]) == (status, "application/problem+json"), got.text
        assert sentence in got.json()["detail"]
        assert TOKEN not in got.text


async def test_it_can_be_mounted_and_can_stand_alone() -> None:
    engine = Quaestor(explicit=True, grid=False)
    alone = AdminApi(quaestor=engine, token=AdminToken(TOKEN))
    transport = httpx.ASGITransport(alone)
    async with httpx.AsyncClient(transport=transport, base_url="http://a", headers=BEARER) as client:
        assert (await client.get(f"{API}/status")).status_code == 200
        assert (await client.get("/else")).status_code == 404
        nobody_looks = await client.post(f"{API}/registrations", json={"url": "/a", "queries": [{"collection": "d.c"}]})
        assert (nobody_looks.status_code, "with the proxy" in nobody_looks.json()["detail"]) == (404, True)
    mounted = httpx.ASGITransport(alone, root_path="/ops")
    async with httpx.AsyncClient(transport=mounted, base_url="http://a", headers=BEARER) as client:
        assert (await client.get("/ops/status")).status_code == 200


@pytest.fixture(params=["memory", "redis"])
async def urls(request: pytest.FixtureRequest, redis_url: str, prefix: str) -> AsyncIterator[RegisteredUrls]:
    if request.param == "memory":
        yield MemoryUrls(limit=2)
        return
    import redis.asyncio

    async with redis.asyncio.Redis.from_url(redis_url) as client:
        yield RedisUrls(client, deployment=prefix, limit=2)


async def test_registered_urls_are_bounded_and_none_is_forgotten_for_another(urls: RegisteredUrls) -> None:
    assert await urls.put("/a", b"[1]")
    assert await urls.put("/b", b"[2]")
    assert not await urls.put("/c", b"[3]")
    assert await urls.put("/a", b"[4]")
    assert await urls.find(["/b", "/c", "/a"]) == [b"[2]", b"[4]"]
    assert await urls.remove("/b")
    assert not await urls.remove("/b")
    assert await urls.count() == 1


async def run(*arguments: str) -> int:
    def call() -> int:
        with pytest.raises(SystemExit) as ended:
            main.main(list(arguments))
        return int(ended.value.code or 0)

    return await anyio.to_thread.run_sync(call)


async def test_clients_are_switched_off_and_on_without_a_restart(tmp_path: Path) -> None:
    """A sketch loaded within a second after the command may still show the state before."""
    token = tmp_path / "token"
    token.write_text(TOKEN)
    async with admin() as (client, _):

        async def off() -> bool:
            return ", off" in (await client.get("/quaestor/sketch")).headers.get("quaestor-sketch", "")

        assert not await off()
        for option, expected in (("--off", True), ("--on", False)):
            assert await run("sketch", option, "--admin", str(client.base_url), "--token-file", str(token)) == 0

            async def heard(expected: bool = expected) -> bool:
                return await off() is expected

            await eventually(heard)


async def test_the_commands_speak_to_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN + "\n")
    async with admin() as (client, _):
        where = ("--admin", str(client.base_url), "--token-file", str(token))
        await client.get("/a")
        assert await cached(client, "/a")
        assert await run("status", *where) == 0
        assert "serving from cache  yes" in capsys.readouterr().out
        assert await run("status", "--json", *where) == 0
        assert json.loads(capsys.readouterr().out.splitlines()[-1])["serving"] is True
        assert await run("invalidate", "--url", "/a", *where) == 0
        assert json.loads(capsys.readouterr().out.splitlines()[-1])["urls"] == 1
        assert not await cached(client, "/a")
        for arguments, sentence in (
            (["invalidate", *where], "nothing to invalidate"),
            (["invalidate", "--url", "a", *where], "neither a path"),
            (["invalidate", "--all", "--admin", "ftp://x", "--token-file", str(token)], "--admin is a URL"),
            (["status", "--admin", str(client.base_url), "--token-file", str(tmp_path / "none")], "cannot be read"),
            (["status", "--admin", "http://127.0.0.1:1", "--token-file", str(token)], "does not answer"),
        ):
            assert await run(*arguments) == 2
            output = capsys.readouterr().err.splitlines()
            assert len(output) == 1
            assert sentence in output[0]
        token.write_text("x" + TOKEN)
        assert await run("status", *where) == 2
        assert "does not accept this token" in capsys.readouterr().err
