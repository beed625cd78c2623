"""Channels inside an application: feeds by POST, results as pages, and the pointer to the newest run in the cache."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from fastapi import Depends, FastAPI, Header, HTTPException
from pymongo import AsyncMongoClient

from quaestor import ChannelFeeds, ChannelResults, ConfigurationError, Quaestor, QuaestorMiddleware
from quaestor.testing.serving import serving
from tests.support import PATIENT

STATEMENTS = """
CREATE ACTIVE DATASET Tweets(tid bigint, area text) PRIMARY KEY tid;
CREATE FEED Posts WITH {"type": "http"};
CONNECT FEED Posts TO DATASET Tweets AS UPSERT;
START FEED Posts;
CREATE BROKER station AT 'http://127.0.0.1:9/';
CREATE CONTINUOUS CHANNEL Local(area text) PERIOD 1 SECOND { SELECT t.tid FROM Tweets t WHERE is_new(t) AND t.area = area }
"""
LOCAL = {**PATIENT, "webhook_networks": ("127.0.0.0/8",), "delivery_attempts": 1}
RIGHT = {"authorization": "Bearer right"}


def may_write(authorization: str = Header("")) -> None:
    if authorization != RIGHT["authorization"]:
        raise HTTPException(401)


@dataclass(frozen=True, slots=True)
class Site:
    """A running application with a channel."""

    client: httpx.Client
    quaestor: Quaestor
    subscription: str

    def post(self, *ids: int) -> None:
        """Post tweets of area OC, as soon as the feed takes them."""
        body = "".join(json.dumps({"tid": identity, "area": "OC"}) + "\n" for identity in ids)
        end_s = time.monotonic() + 60
        while (answer := self.client.post("/feeds/Posts", content=body, headers=RIGHT)).status_code == 503:
            assert time.monotonic() < end_s
            time.sleep(0.05)
        assert answer.json() == {"accepted": len(ids), "rejected": 0, "repeated": False}

    def newest(self, **fields: str) -> httpx.Response:
        answer = self.client.get("/channels/Local/newest", headers=fields)
        assert answer.status_code == 200, answer.text
        return answer

    def until_newer(self, than: int) -> int:
        """Ask for the pointer until it names a newer run; return the run."""
        end_s = time.monotonic() + 60
        while (newest := self.newest().json()["newest"]) <= than:
            assert time.monotonic() < end_s
            time.sleep(0.05)
        return int(newest)

    def ids(self, after: int) -> list[int]:
        page = self.client.get(f"/channels/Local/subscriptions/{self.subscription}/results?after={after}").json()
        return [result["result"]["tid"] for run in page["runs"] for result in run["results"]]


@pytest.fixture(scope="module")
def site(mongo_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    quaestor = Quaestor(mongo_url=mongo_url, continuous_folder=str(tmp_path_factory.mktemp("tables")), **LOCAL)
    mongo: AsyncMongoClient[Any] = AsyncMongoClient(mongo_url, event_listeners=[quaestor.capture])

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await mongo.aconnect()
        yield
        await mongo.close()

    app = FastAPI(lifespan=lifespan)
    app.add_middleware(QuaestorMiddleware, quaestor=quaestor)
    app.include_router(ChannelResults(quaestor))
    app.include_router(ChannelFeeds(quaestor, dependencies=[Depends(may_write)]))
    with serving(app) as url, httpx.Client(base_url=url, timeout=60) as client:
        interpreter = quaestor.parts.channels.administration().interpreter
        interpreter.run(STATEMENTS)
        ((identity,),) = interpreter.run("SUBSCRIBE TO Local('OC') ON station")[0].rows
        yield Site(client, quaestor, identity)


def test_the_pointer_is_cached_and_a_run_with_results_invalidates_it(site: Site) -> None:
    """A run without results leaves the stored pointer alone; a page that the pointer leads to holds the new record once."""
    site.post(1)
    first = site.until_newer(0)
    end_s = time.monotonic() + 60
    while "; hit" not in site.newest().headers["cache-status"]:
        assert time.monotonic() < end_s
    site.post(2)
    second = site.until_newer(first)
    assert site.ids(0) == [1, 2]
    assert site.ids(first) == [2]
    runs = site.quaestor.parts.channels.administration().interpreter.run("SHOW RUNS OF Local")[0].rows
    while site.quaestor.parts.channels.administration().interpreter.run("SHOW RUNS OF Local")[0].rows == runs:
        time.sleep(0.05)  # until a further run, which finds nothing
    assert site.newest().json()["newest"] == second


def test_a_long_poll_is_held_back_although_the_pointer_is_stored(site: Site) -> None:
    site.post(11)
    before = site.until_newer(0)
    assert site.newest().json()["newest"] >= before
    newest = site.newest().json()["newest"]
    site.post(12)
    held = site.client.get(f"/channels/Local/newest?after={newest}", headers={"prefer": "wait=50"})
    assert held.json()["newest"] > newest
    assert held.headers["cache-control"] == "no-store"


def test_a_dependency_decides_who_writes(site: Site) -> None:
    assert site.client.post("/feeds/Posts", content='{"tid": 99}').status_code == 401
    assert site.client.post("/feeds/Unknown", content='{"tid": 99}', headers=RIGHT).status_code == 404
    with pytest.raises(ConfigurationError, match="nobody decides who may write"):
        ChannelFeeds(site.quaestor)
    with pytest.raises(ConfigurationError, match="set continuous_folder"):
        ChannelResults(Quaestor(grid=False))


@pytest.mark.anyio
async def test_feeds_without_a_folder_are_refused_at_the_start() -> None:
    quaestor = Quaestor(grid=False)
    ChannelFeeds(quaestor, anyone=True)
    with pytest.raises(ConfigurationError, match="feeds need a folder"):
        await quaestor.start()
