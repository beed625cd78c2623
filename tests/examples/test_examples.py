"""Each example: asked twice it is a hit, after a write the next answer is the new one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio.to_thread
import httpx
import pymongo
import pytest

from quaestor.testing import servers
from tests.docs.transcripts import run, transcript
from tests.examples.started import process, uvicorn
from tests.support import becomes, eventually

EXAMPLES = Path(__file__).parents[2] / "examples"
PATIENCE_S = 60.0


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


@pytest.mark.slow
@pytest.mark.anyio
async def test_two_workers_on_one_redis_with_the_grid(
    mongo_url: str, redis_url: str, database: str, tmp_path: Path
) -> None:
    """An answer that one worker has cached is served by the other."""
    where = {"MONGO_URL": mongo_url, "REDIS_URL": redis_url, "QUAESTOR_DEPLOYMENT": database, "DATABASE": database}
    grid = [sys.executable, "-m", "quaestor.cli", "cluster", "--ready-timeout", "240"]
    with (
        process(tmp_path, "grid", grid, ready=lambda server: "ingest running" in server.log_tail(), **where),
        uvicorn(tmp_path, "examples.redis_grid_app:app", "--workers", "2", **where) as url,
    ):
        await anyio.to_thread.run_sync(keeps_its_promise, url, tmp_path)
        async with httpx.AsyncClient(base_url=url) as client:

            async def served_by_both() -> bool:
                for _ in range(10):  # each on a connection of its own: the kernel chooses the worker
                    async with httpx.AsyncClient(base_url=url) as other:
                        answer = await other.get("/shelves/7")
                    if "hit" in answer.headers["cache-status"]:
                        makers.add(answer.headers["x-worker"])
                        layers.add(answer.headers["cache-status"])
                return len(makers) == 1 and bool(layers)

            makers: set[str] = set()
            layers: set[str] = set()
            await eventually(served_by_both, within_s=PATIENCE_S)
            assert (await client.get("/shelves/7")).headers["x-worker"] in makers
