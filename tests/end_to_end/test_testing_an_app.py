"""Tests of an application, as its owner writes them: fixtures that write, clients one after the other, Quaestor turned off."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pymongo
import pytest
from fastapi import FastAPI

from quaestor import ConfigurationError, Quaestor
from quaestor.event_layer import streams
from quaestor.middleware import QuaestorMiddleware
from quaestor.testing import assert_cached, assert_cached_async, assert_not_cached, assert_not_cached_async
from quaestor.testing.serving import serving
from tests.docs.blocks import blocks
from tests.support import PATIENT

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # newer ones prefer another HTTP client
    from starlette.testclient import TestClient


class Shop:
    """A module of a stranger: one Quaestor, one client, one app, for all tests."""

    def __init__(self, mongo_url: str, database: str, **settings: Any) -> None:
        self.quaestor = Quaestor(**PATIENT | settings)
        self.client: pymongo.MongoClient[dict[str, Any]] = pymongo.MongoClient(
            mongo_url, event_listeners=[self.quaestor.capture]
        )
        self.items = self.client[database].items
        self.runs = 0
        self.app = FastAPI()
        self.app.add_middleware(QuaestorMiddleware, quaestor=self.quaestor)
        self.app.get("/items")(self.listed)

    def listed(self) -> list[Any]:
        self.runs += 1
        return [item["_id"] for item in self.items.find({}).sort("_id", 1)]


@pytest.fixture
def shop(mongo_url: str, prefix: str) -> Iterator[Shop]:
    shop = Shop(mongo_url, prefix)
    yield shop
    shop.client.close()


def threads() -> list[str]:
    """Threads of Quaestor that run now."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("quaestor-")]


def test_a_fixture_s_write_is_shown_after_settled_sync(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first GET after a write by a client outside of the app is never old, however late the write is noticed."""
    layer = shop.quaestor.parts.storage.layer
    append, written = layer.append, streams.writes(shop.quaestor.settings.deployment, 0)

    def late(stream: str, payloads: Sequence[bytes], **others: Any) -> None:
        if stream == written:
            time.sleep(0.05)
        append(stream, payloads, **others)

    monkeypatch.setattr(layer, "append", late)
    with TestClient(shop.app) as client:
        shop.quaestor.settled_sync()
        for number in range(10):
            assert_cached(client, "/items")
            shop.items.insert_one({"_id": number})
            shop.quaestor.settled_sync()
            assert client.get("/items").json() == list(range(number + 1))


def test_a_second_test_client_caches_as_the_first_did(shop: Shop) -> None:
    """The second client shows writes made between the two, serves nothing of the first, and leaves no thread."""
    for number in range(3):
        with TestClient(shop.app) as client:
            shop.quaestor.settled_sync()
            assert assert_not_cached(client, "/items").json() == list(range(number))
            assert_cached(client, "/items")
            runs = shop.runs
            assert client.get("/items").json() == list(range(number))
            assert shop.runs == runs
        assert threads() == []
        shop.items.insert_one({"_id": number})


@pytest.mark.anyio
async def test_settled_on_the_loop_of_the_app_and_on_another(shop: Shop, anyio_backend: str) -> None:
    """`settled` is awaited where the app runs; another loop waits for the first; the synchronous one refuses where it
    would hang.
    """
    async with httpx.AsyncClient(transport=httpx.ASGITransport(shop.app), base_url="http://shop") as client:
        await client.get("/items")
        await shop.quaestor.settled()
        await assert_cached_async(client, "/items")
        shop.items.insert_one({"_id": 1})
        await asyncio.to_thread(asyncio.run, shop.quaestor.settled())
        assert (await assert_not_cached_async(client, "/items")).json() == [1]
        with pytest.raises(ConfigurationError, match="await"):
            shop.quaestor.settled_sync()
    await shop.quaestor.stop()


def test_without_a_lifespan_everything_ends_with_its_event_loop(shop: Shop) -> None:
    """ASGITransport runs no lifespan: the threads end with each event loop, and the next loop caches again."""

    async def session(number: int) -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(shop.app), base_url="http://shop") as client:
            await client.get("/items")
            await shop.quaestor.settled()
            assert (await assert_cached_async(client, "/items")).json() == list(range(number))
            assert threads()

    for number in range(3):
        asyncio.run(session(number))
        assert threads() == []
        shop.items.insert_one({"_id": number})


def test_settled_says_what_is_wrong_when_the_loop_of_the_start_stands_still(shop: Shop) -> None:
    """A loop that exists and does not run can settle nothing."""
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(shop.quaestor.start())
        with pytest.raises(ConfigurationError, match="does not run now"):
            shop.quaestor.settled_sync()
        loop.run_until_complete(shop.quaestor.stop())
        shop.quaestor.settled_sync()
    finally:
        loop.close()


@pytest.mark.parametrize("how", ["setting", "variable"])
def test_the_switch_turns_everything_off(
    mongo_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """No thread, no field of ours, every handler runs; what tests call goes on working."""
    if how == "variable":
        monkeypatch.setenv("QUAESTOR_ENABLED", "0")
    shop = Shop(mongo_url, prefix, **({"enabled": False} if how == "setting" else {}))
    with shop.client, TestClient(shop.app) as client:
        for number in range(3):
            answer = assert_not_cached(client, "/items")
            assert "cache-status" not in answer.headers
            assert shop.runs == number + 1
        assert threads() == []
        assert client.get("/quaestor/sketch").status_code == 404
        shop.quaestor.settled_sync()
        asyncio.run(shop.quaestor.invalidate(urls=["/items"]))
        with pytest.raises(AssertionError, match="missing or turned off"):
            assert_cached(client, "/items", within_s=0)


def test_the_variable_turns_on_what_the_program_turns_off_and_refuses_other_values(
    mongo_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUAESTOR_ENABLED", "1")
    assert Quaestor(enabled=False).settings.enabled
    monkeypatch.setenv("QUAESTOR_ENABLED", "perhaps")
    with pytest.raises(ConfigurationError, match="QUAESTOR_ENABLED='perhaps'"):
        Quaestor()


def test_the_variable_decides_whether_constants_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUAESTOR_CLOCK_PARTS", "1")
    assert Quaestor(clock_parts=False).settings.lifetimes.clock_parts
    monkeypatch.setenv("QUAESTOR_CLOCK_PARTS", "false")
    assert not Quaestor().settings.lifetimes.clock_parts
    monkeypatch.setenv("QUAESTOR_CLOCK_PARTS", "now and then")
    with pytest.raises(ConfigurationError, match="QUAESTOR_CLOCK_PARTS='now and then'"):
        Quaestor()


SHOP = """
import os
from datetime import UTC, datetime
import pymongo
from fastapi import FastAPI
from quaestor import Quaestor
from quaestor.middleware import QuaestorMiddleware

quaestor = Quaestor(probation_answers=0)
items = pymongo.MongoClient(os.environ["MONGO_URL"], event_listeners=[quaestor.capture]).shop.items
app = FastAPI()
app.add_middleware(QuaestorMiddleware, quaestor=quaestor)


@app.get("/items")
def listed() -> list[int]:
    return [item["_id"] for item in items.find().sort("_id", 1)]


@app.get("/now")
def departures() -> int:
    return items.count_documents({"minute": datetime.now(UTC).minute})
"""

CLOCK_TESTS = """
import re
from quaestor.testing import assert_cached


def test_now(client, settle):
    settle()
    (seconds,) = re.findall("ttl=([0-9]+)", assert_cached(client, "/now").headers["cache-status"])
    assert int(seconds) {comparison} 60
"""


@pytest.mark.parametrize("library", ["anyio", "asyncio"])
def test_a_stranger_s_project_with_the_plug_in_is_green(
    mongo_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    """conftest.py and tests as docs/testing.md prints them, in several files, beside one database for the session.

    A constant that equals the present minute is a number, unless a test turns the search on. With AnyIO's plug-in MONGO_URL is
    set. With pytest-asyncio it is not: conftest.py starts a server above the import of the app, and leaves nothing behind.
    """
    monkeypatch.delenv("QUAESTOR_CLOCK_PARTS")
    conftest, synchronous, first_lines, searching, served, timed, asynchronous = [
        block.text for block in blocks() if block.document == "docs/testing.md" and block.language == "python"
    ]
    other = "anyio" if library == "asyncio" else "asyncio"
    if library == "asyncio":
        monkeypatch.delenv("MONGO_URL", raising=False)
        conftest = first_lines + conftest
        asynchronous = asynchronous.replace("@pytest.mark.anyio", "@pytest.mark.asyncio")
    else:
        monkeypatch.setenv("MONGO_URL", mongo_url)
    tests = {
        "test_items.py": synchronous,
        "test_items_again.py": synchronous,
        "test_served.py": served,
        "test_timed.py": timed,
        "test_on_a_loop.py": asynchronous,
        "test_number_of_a_minute.py": CLOCK_TESTS.format(comparison=">"),
        "test_the_clock.py": searching + CLOCK_TESTS.format(comparison="<="),
    }
    # Its own settings: those of a folder above would count otherwise.
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    for name, text in {"conftest.py": conftest, "shop.py": SHOP, **tests}.items():
        (tmp_path / name).write_text(text)
    (servers := tmp_path / "servers").mkdir()
    plugins = ["-p", "no:cacheprovider", "-p", f"no:{other}"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugins, "-k", "not trio", str(tmp_path)],
        cwd=tmp_path, env=os.environ | {"TMPDIR": str(servers)}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-3_000:] + run.stderr[-2_000:]
    assert "7 passed" in run.stdout
    assert list(servers.iterdir()) == []


def test_a_fixture_that_needs_uvicorn_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(ConfigurationError, match="pip install uvicorn"), serving(FastAPI()):
        pass
