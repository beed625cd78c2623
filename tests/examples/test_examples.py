"""Each example: asked twice it is a hit, after a write the next answer is the new one."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, closing
from itertools import count, islice
from pathlib import Path
from typing import Any

import anyio.to_thread
import httpx
import pymongo
import pytest

from quaestor.event_layer.connecting import event_layer
from quaestor.invalidation.grid.election import MatchedBy, matching
from quaestor.testing import servers
from tests.docs.transcripts import run, transcript
from tests.examples.started import process, uvicorn
from tests.support import becomes, eventually

EXAMPLES = Path(__file__).parents[2] / "examples"
PATIENCE_S = 60.0
UNSHARED = httpx.Limits(max_keepalive_connections=0)


@pytest.fixture
def database(mongo_url: str, prefix: str) -> Iterator[str]:
    yield prefix
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as client:
        client.drop_database(prefix)


def keeps_its_promise(url: str, folder: Path) -> None:
    """The commands of the examples' README print what it says: a miss, a hit, a write, and the new answer."""
    assert len(list(run("examples/README.md", folder, {"localhost:8000": url.removeprefix("http://")}))) == 5


@pytest.mark.parametrize("app", ["fastapi_app", "beanie_app", "litestar_app"])
def test_an_app_with_the_cache_in_its_process(app: str, mongo_url: str, database: str, tmp_path: Path) -> None:
    with uvicorn(tmp_path, f"examples.{app}:app", MONGO_URL=mongo_url, DATABASE=database) as url:
        keeps_its_promise(url, tmp_path)


def test_continuous_queries_report_as_their_tutorial_prints(mongo_url: str, database: str, tmp_path: Path) -> None:
    """Reminders, expiring offers and orders without a reply, each once; a restart repeats nothing."""
    document, places = "docs/continuous/tutorial.md", {"MONGO_URL": mongo_url, "DATABASE": database}
    places["QUAESTOR_CONTINUOUS_FOLDER"] = str(tmp_path / "tables")
    with uvicorn(tmp_path, "examples.continuous_app:app", **places) as url:
        commands = list(run(document, tmp_path, {"localhost:8000": url.removeprefix("http://")}))
        before = httpx.get(f"{url}/reports").json()
    assert len(commands) == len(transcript(document)) >= 9
    (tmp_path / "again").mkdir()
    with uvicorn(tmp_path / "again", "examples.continuous_app:app", **places) as url:
        added = {"note": "after the restart", "in_s": 0}
        assert httpx.post(f"{url}/reminders", json=added, timeout=PATIENCE_S).status_code == 201
        expected = sorted([*before, "remind: after the restart"])
        becomes(lambda: httpx.get(f"{url}/reports").json() == expected, within_s=PATIENCE_S)
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as client:
        assert client[database].reports.count_documents({}) == len(expected)


@pytest.fixture(scope="module")
def node_app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Node example with its driver."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("there is no Node here (apt-get install nodejs npm)")
    folder = tmp_path_factory.mktemp("node") / "app"
    shutil.copytree(EXAMPLES / "proxy_node", folder, ignore=shutil.ignore_patterns("node_modules"))
    install = ["npm", "install", "--no-audit", "--no-fund", "--prefer-offline", "--no-package-lock"]
    done = subprocess.run(install, cwd=folder, capture_output=True, text=True, timeout=240, check=False)
    if done.returncode:
        pytest.skip(f"npm cannot install MongoDB's driver for Node here: {done.stderr[-200:]}")
    return folder


def test_a_node_program_behind_the_proxy(node_app: Path, mongo_url: str, database: str, tmp_path: Path) -> None:
    port, listen = servers.free_port(), servers.free_port()
    node = ["node", str(node_app / "server.js")]
    proxy = [
        sys.executable, "-m", "quaestor.cli", "proxy", "--origin", f"http://{servers.HOST}:{port}",
        "--listen", f"{servers.HOST}:{listen}", "--database", database,
    ]  # fmt: skip
    with (
        process(tmp_path, "node", node, port=port, MONGO_URL=mongo_url, DATABASE=database, PORT=str(port)),
        process(tmp_path, "proxy", proxy, port=listen, MONGO_URL=mongo_url) as server,
    ):
        keeps_its_promise(server.url, tmp_path)


@pytest.mark.anyio
@pytest.mark.parametrize("mode", [MatchedBy.ELECTED, pytest.param(MatchedBy.GRID, marks=pytest.mark.slow)])
async def test_two_workers_on_one_redis(
    mongo_url: str, redis_url: str, database: str, tmp_path: Path, mode: MatchedBy
) -> None:
    """Each worker serves what the other has cached. One of them is elected, unless `quaestor grid` runs beside them."""
    where = {"MONGO_URL": mongo_url, "REDIS_URL": redis_url, "QUAESTOR_DEPLOYMENT": database, "DATABASE": database}
    shelves = count(100)
    async with AsyncExitStack() as running:
        layer = running.enter_context(closing(event_layer(redis_url, database)))
        if mode is MatchedBy.GRID:
            grid = [sys.executable, "-m", "quaestor.cli", "grid"]
            running.enter_context(
                process(tmp_path, "grid", grid, port=0, ready=lambda _: matching(layer, database).by is mode, **where)
            )
        url = running.enter_context(uvicorn(tmp_path, "examples.redis_app:app", "--workers", "2", **where))
        await anyio.to_thread.run_sync(keeps_its_promise, url, tmp_path)

        # Each request opens a connection: the kernel chooses the worker.
        client = await running.enter_async_context(httpx.AsyncClient(base_url=url, timeout=PATIENCE_S, limits=UNSHARED))

        async def maker(shelf: int, *, cached: bool) -> int:
            """Process that made the answer; 0: the answer is no hit, or is one and should not be."""
            answer = await client.get(f"/shelves/{shelf}")
            return int(answer.headers["x-worker"]) if ("; hit" in answer.headers["cache-status"]) is cached else 0

        async def shared() -> bool:
            fresh = list(islice(shelves, 20))
            workers.update(makers := await asyncio.gather(*(maker(shelf, cached=False) for shelf in fresh)))
            hits = [await asyncio.gather(*(maker(shelf, cached=True) for shelf in fresh)) for _ in range(4)]
            return len({*makers} - {0}) == 2 and all(makers == made for made in hits)

        workers = set[int]()
        await eventually(shared, within_s=PATIENCE_S)
        matched = matching(layer, database)
        assert matched.by is mode
        assert matched.leader in (
            {f"{socket.gethostname()}:{pid}" for pid in workers} if mode is MatchedBy.ELECTED else {None}
        )
