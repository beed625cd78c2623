"""Every code block of the documents works as it stands.

Python runs against a real mongod, the command line accepts each command, and each reader understands its JSON.
"""

from __future__ import annotations

import ast
import asyncio
import base64
import inspect
import json
import os
import re
import shlex
import sys
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import anyio
import httpx
import pymongo
import pytest
import typer
import uvicorn
from typer.testing import CliRunner
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from quaestor.cli.main import app as command_line
from tests.cdn_contracts.google_cloud_cdn import service_account
from tests.docs.blocks import ROOT, Block, blocks
from tests.end_to_end.scripted_origin import serving
from tests.live.streamed import following
from tests.support import eventually

pytestmark = pytest.mark.anyio
BLOCKS = blocks()
RUN_AS_A_PROJECT = "docs/testing.md"
"""By tests/end_to_end/test_testing_an_app.py."""
BEFORE = "# before"
"""First words of a block that belongs to another library: it is compiled, and never run."""
PYTHON = [
    block
    for block in BLOCKS
    if block.language == "python" and block.document != RUN_AS_A_PROJECT and not block.text.startswith(BEFORE)
]
SHELL = [block for block in BLOCKS if block.language == "bash"]
JSON = [block for block in BLOCKS if block.language == "json"]
MONGOSH = [block for block in BLOCKS if block.language == "js"]
URL = re.compile(r"mongodb://localhost(:27017)?/\?replicaSet=rs0")
Names = dict[str, Any]
ENDED = "the block has ended"
"""A name of a block that has run to its end. A client whose block is cancelled before may leave its connection open."""
Use = Callable[[Names, Any], Awaitable[None]]
APP = """
from fastapi import FastAPI
from pymongo import AsyncMongoClient
from quaestor.middleware import QuaestorMiddleware
from quaestor import Quaestor
app = FastAPI()
quaestor = Quaestor()
client = AsyncMongoClient("mongodb://localhost:27017/?replicaSet=rs0", event_listeners=[quaestor.capture])
"""
MIDDLEWARES = """
from starlette.authentication import AuthenticationBackend
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.sessions import SessionMiddleware
class Nobody(AuthenticationBackend):
    async def authenticate(self, conn): return None
secret, backend, origins = "a-secret-of-enough-characters", Nobody(), ["https://shop.test"]
"""
PRIVACY = """
from typing import Annotated
from fastapi import APIRouter, Depends
class User: ...
def current_user() -> User: return User()
def user_of(request) -> str: return ""
"""


async def run_to_its_end(code: CodeType, names: Names) -> None:
    await eval(code, names)
    names[ENDED] = True


async def asked(names: Names, path: str) -> httpx.Response:
    """One request to the document's app."""
    async with httpx.AsyncClient(transport=httpx.ASGITransport(names["app"]), base_url="http://shop") as http:
        return await http.get(path)


async def cached_until_written(names: Names, path: str, write: Callable[[], Any]) -> None:
    """The path becomes a hit, and a write from outside changes the very next answers."""
    before: httpx.Response | None = None

    async def hit() -> bool:
        nonlocal before
        before = (await asked(names, path)).raise_for_status()
        return "; hit" in before.headers.get("cache-status", "")

    async def new() -> bool:
        assert before is not None
        return (await asked(names, path)).content != before.content

    await eventually(hit)
    write()
    await eventually(new)


async def departures(names: Names, mongo: Any) -> None:
    flights = mongo.airport.flights
    flight = {"origin": "JFK", "flight": "B6 371", "scheduled": os.urandom(6).hex()}
    await cached_until_written(names, "/departures/JFK", lambda: flights.insert_one(flight))


async def shelves(names: Names, mongo: Any) -> None:
    items = mongo.tutorial.items
    async with httpx.AsyncClient(transport=httpx.ASGITransport(names["app"]), base_url="http://shop") as http:
        (await http.post("/items", json={"name": "tea", "shelf": 7, "price": 3})).raise_for_status()
    await cached_until_written(names, "/shelves/7", lambda: items.insert_one({"name": "mint", "shelf": 7, "price": 1}))


async def offers(names: Names, mongo: Any) -> None:
    offer = {"_id": os.urandom(6).hex(), "expires": datetime(2100, 1, 1)}
    await cached_until_written(names, "/offers", lambda: mongo.shop.offers.insert_one(offer))


async def migrated_shelves(names: Names, mongo: Any) -> None:
    """A write of the app and one from outside invalidate, without the removed call."""
    await cached_until_written(
        names, "/shelves/7", lambda: mongo.migrated.items.insert_one({"shelf": 7, "name": "tea"})
    )
    await cached_until_posted(names, "/shelves/7", "/shelves/7?name=mint")


async def migrated_prices(names: Names, mongo: Any) -> None:
    """A write to the shelf invalidates, and so does the tag that remains."""
    mongo.migrated.items.insert_one({"shelf": 8, "name": "tea", "price": 3})
    await cached_until_posted(names, "/prices/8", "/prices/8?factor=2")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(names["app"]), base_url="http://shop") as http:

        async def hit() -> bool:
            return "; hit" in (await http.get("/prices/8")).headers["cache-status"]

        await eventually(hit)
        (await http.post("/catalogue")).raise_for_status()

        async def missed() -> bool:
            return not await hit()

        await eventually(missed)


async def cached_until_posted(names: Names, path: str, post: str) -> None:
    """The path becomes a hit, and a POST to the app changes the next answers."""
    async with httpx.AsyncClient(transport=httpx.ASGITransport(names["app"]), base_url="http://shop") as http:
        before = await http.get(path)

        async def hit() -> bool:
            return "; hit" in (await http.get(path)).headers["cache-status"]

        async def new() -> bool:
            return (await http.get(path)).content != before.content

        await eventually(hit)
        (await http.post(post)).raise_for_status()
        await eventually(new)


async def listed_ids(names: Names, mongo: Any) -> None:
    identifier = mongo.tutorial.items.insert_one({"name": "tea", "shelf": 8, "price": 3}).inserted_id
    answer = await asked(names, "/listed/8")
    assert {"name": "tea", "shelf": 8, "price": 3.0, "id": str(identifier)} in answer.json()


async def records(names: Names, mongo: Any) -> None:
    items = mongo.shop.items
    items.replace_one({"_id": "nine"}, {"shelf": 9}, upsert=True)
    await cached_until_written(names, "/db/items/nine", lambda: items.update_one({"_id": "nine"}, {"$inc": {"n": 1}}))


async def answers(names: Names, mongo: Any) -> None:
    """The app still answers with what was put around it."""
    assert (await asked(names, "/nowhere")).status_code == 404


async def followed(names: Names, mongo: Any) -> None:
    mongo.shop.items.insert_one({"_id": os.urandom(6).hex(), "tag": "tea", "price": 0})
    await eventually(lambda: any(document["price"] == 0 for _, document in names.get("rows", ())))


async def subscribed_over_a_socket(names: Names, mongo: Any) -> None:
    """The endpoint sends the result, and a match for a write from outside."""
    server = uvicorn.Server(uvicorn.Config(names["app"], port=0, log_config=None))
    serving = asyncio.create_task(server.serve())
    await eventually(lambda: server.started)
    port = server.servers[0].sockets[0].getsockname()[1]
    name = os.urandom(6).hex()
    async with connect(f"ws://127.0.0.1:{port}/live", subprotocols=[Subprotocol("quaestor.v1")]) as socket:
        await socket.send(
            json.dumps({"type": "subscribe", "id": "1", "bucket": "items", "query": f'{{"_id": "{name}"}}'})
        )
        assert json.loads(await socket.recv())["data"] == []
        mongo.shop.items.insert_one({"_id": name})
        assert json.loads(await socket.recv())["data"] == {"_id": name}
    server.should_exit = True
    await serving


async def live_shelf(names: Names, mongo: Any) -> None:
    """A stream begins with the answer, and a write from outside is pushed."""
    async with (
        serving(uvicorn.Config(names["app"], ws="none")) as url,
        httpx.AsyncClient(base_url=url) as http,
        following(http, "/shelves/7") as stream,
    ):
        assert await stream.event() is not None
        name = os.urandom(6).hex()
        mongo.shop.stock.insert_one({"shelf": 7, "name": name, "price": 1})
        pushed = await stream.event()
        assert pushed is not None
        assert name in pushed.data


async def live_teas(names: Names, mongo: Any) -> None:
    """The page is served, and its route pushes the ten cheapest teas after a write from outside."""
    name = os.urandom(6).hex()
    async with (
        serving(uvicorn.Config(names["app"], ws="none")) as url,
        httpx.AsyncClient(base_url=url) as http,
        following(http, "/teas") as stream,
    ):
        assert 'new EventSource("/teas")' in (await http.get("/")).text
        assert await stream.event() is not None
        mongo.shop.items.insert_one({"_id": name, "tag": "tea", "name": name, "price": -1})
        try:
            pushed = await stream.event()
            assert pushed is not None
            assert json.loads(pushed.data)[0] == {"tag": "tea", "name": name, "price": -1}
        finally:
            mongo.shop.items.delete_one({"_id": name})


async def end_of_the_site(names: Names, mongo: Any) -> None:
    """The block came to its end: it has met a result and an event."""
    try:
        await eventually(lambda: "event" in names and "rows" in names)
        assert names["rows"] == [{"_id": 1, "tag": "tea"}]
    finally:
        names["running"].__exit__(None, None, None)


async def both_accounts(names: Names, mongo: Any) -> None:
    """The block came to its end: it has met a result of both streams."""
    try:
        await eventually(lambda: ENDED in names)
        assert (names["ann"].latest(), names["bob"].latest()) == ([], [])
    finally:
        names["running"].__exit__(None, None, None)


async def end_of_the_result(names: Names, mongo: Any) -> None:
    """The block came to its end: it has met a result."""
    try:
        await eventually(lambda: "rows" in names)
        assert names["rows"] == [{"_id": 1, "tag": "tea"}]
    finally:
        names["running"].__exit__(None, None, None)


async def read_by_a_client(names: Names, mongo: Any) -> None:
    """The example runs to its end, and shows the output that it announces."""
    try:
        await eventually(lambda: ENDED in names)
        assert len(names["members"]) == 3
        assert "second" not in names or names["second"].extensions["quaestor"] == "memory"
    finally:
        names["running"].__exit__(None, None, None)


async def stored(names: Names, mongo: Any) -> None:
    try:
        await eventually(lambda: ENDED in names)
        assert (await anyio.Path(names["FOLDER"] / "answers.db").stat()).st_size
    finally:
        names["running"].__exit__(None, None, None)


async def sent_through(names: Names, mongo: Any) -> None:
    try:
        await eventually(lambda: ENDED in names)
        assert names["answer"].status_code == 200
    finally:
        names["running"].__exit__(None, None, None)


LIVE = """
from tests.live.socket_site import live_site
running = live_site("mongodb://localhost/?replicaSet=rs0", "live_document")
SITE = running.__enter__()
SITE.database.items.insert_one({"_id": 1, "tag": "tea"})
"""
ACCOUNTS = f"""{LIVE}
from quaestor import LiveClient
SITE.database.drop_collection("accounts")
SITE.database.create_collection("accounts", changeStreamPreAndPostImages={{"enabled": True}})
"""
SHOP = """
from tests.sketch_clients.http_server import Shop, serving
running = serving(Shop())
SHOP = running.__enter__()
"""
FOLDER = "from pathlib import Path\nFOLDER = Path('/var/lib/quaestor/statistics')"
TUTORIAL = next(block.text for block in PYTHON if block.name == "docs/tutorial.md-python-1")
USES: dict[str, tuple[str, Use | None]] = {
    "README.md-python-1": ("", departures),
    "docs/api.md-python-1": ("", None),
    "docs/clock.md-python-1": ("", offers),
    "docs/grid.md-python-1": ("from quaestor import Quaestor", None),
    "docs/index.md-python-1": ("", answers),
    "docs/installing.md-python-1": ("", answers),
    "docs/migrating.md-python-2": ("", migrated_shelves),
    "docs/migrating.md-python-4": ("", migrated_prices),
    "docs/tables.md-python-1": ("", None),
    "docs/tables.md-python-2": ("from quaestor.tables import Catalogue", None),
    "docs/tutorial.md-python-1": ("", shelves),
    "docs/tutorial.md-python-2": (TUTORIAL, listed_ids),
    "docs/browser_client.md-python-1": (APP, answers),
    "docs/cdn.md-python-1": (APP, None),
    "docs/cdn.md-python-2": ("from quaestor import Quaestor", None),
    "docs/cdn.md-python-3": (APP, None),
    "docs/rest.md-python-1": ("", records),
    "docs/rest.md-python-2": ("from quaestor import Access, CollectionAccess, Rule", None),
    "docs/python_client.md-python-1": (SHOP, read_by_a_client),
    "docs/python_client.md-python-2": (SHOP, read_by_a_client),
    "docs/python_client.md-python-3": (SHOP, sent_through),
    "docs/python_client.md-python-4": (f"{SHOP}\n{FOLDER}", stored),
    "docs/admin.md-python-1": (f"from pathlib import Path\n{APP}", answers),
    "docs/dashboard.md-python-1": (f"from pathlib import Path\n{APP}", answers),
    "docs/observability.md-python-1": (APP, None),
    "docs/middleware_order.md-python-1": (f"{APP}\n{MIDDLEWARES}", answers),
    "docs/proxy.md-python-1": ("", None),
    "docs/privacy.md-python-1": (f"{APP}\n{PRIVACY}", answers),
    "docs/statistics.md-python-1": ("from pathlib import Path", None),
    "docs/live.md-python-1": ("", live_shelf),
    "docs/live_http.md-python-1": (LIVE, end_of_the_result),
    "docs/live_tutorial.md-python-1": ("", live_teas),
    "docs/live_queries.md-python-2": (LIVE, end_of_the_site),
    "docs/live_queries.md-python-3": (ACCOUNTS, both_accounts),
    "docs/live_queries.md-python-1": ("", subscribed_over_a_socket),
    "docs/subscriptions.md-python-1": (f"{APP}\nawait quaestor.start()", followed),
}
"""The requirements of each block, and its use after it has run."""
USES |= {block.name: (APP, None) for block in PYTHON if block.document.startswith("docs/cdn/")}
SECRETS = {"QUAESTOR_WEBHOOK_KEY": "whsec_" + base64.b64encode(b"a webhook's key of 32 characters").decode()}
"""Environment variables whose values have a form."""


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: block.name)
async def test_every_python_block_runs(
    block: Block, mongo_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs; an app caches, and answers anew after a write from outside."""
    for name in re.findall(r'os\.environ\["(\w+)"\]', block.text):
        monkeypatch.setenv(name, SECRETS.get(name, "a-secret-of-enough-characters"))
    assert block.name in USES, "say in USES what it presumes and how it is used"
    presumed, use = USES[block.name]
    (tmp_path / "purger.json").write_text(service_account("http://127.0.0.1:9/token"))
    (tmp_path / "secret").write_text("a-token-of-enough-characters-0123456789")
    text = URL.sub(mongo_url, f"{presumed}\n{block.text}")
    text = text.replace('"ws://localhost:8000/live"', "SITE.url")
    text = text.replace('"http://localhost:8000/live"', 'SITE.http + "/live"')
    text = text.replace("/run/secrets/quaestor", str(tmp_path / "secret"))
    text = text.replace("/run/secrets/purger.json", str(tmp_path / "purger.json"))
    text = text.replace("/var/lib/quaestor/statistics", str(tmp_path)).replace("since_ms=...", "since_ms=0")
    text = text.replace("/var/lib/quaestor/tables", str(tmp_path / "tables"))
    module = ModuleType("document")  # where pydantic looks for the names of annotations
    monkeypatch.setitem(sys.modules, module.__name__, module)
    names: Names = vars(module)
    code = compile(text, block.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    with pymongo.MongoClient[Any](mongo_url) as mongo:
        try:
            async with anyio.create_task_group() as tasks:
                if code.co_flags & inspect.CO_COROUTINE:
                    tasks.start_soon(run_to_its_end, code, names)
                else:
                    exec(code, names)
                    names[ENDED] = True
                if use is not None:
                    await use(names, mongo)
                tasks.cancel_scope.cancel()
        finally:
            if "quaestor" in names and not inspect.ismodule(names["quaestor"]):
                await names["quaestor"].stop()
            if "client" in names:
                await names["client"].close()


@pytest.mark.parametrize("block", SHELL, ids=lambda block: block.name)
def test_every_shell_command_exists(block: Block) -> None:
    """Every command exists and takes these options; every make target and extra is there."""
    root = typer.main.get_command(command_line)
    lines = block.text.replace("\\\n", " ").splitlines()
    assert lines
    for line in lines:
        words = shlex.split(line.removeprefix("$ ").replace("[", "").replace("]", ""), comments=True)
        while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
            words.pop(0)
        match words:
            case ["quaestor", "cdn", "config", *_]:
                printed = CliRunner().invoke(command_line, words[1:])
                assert printed.exit_code == 0, (line, printed.exception)
                assert printed.stdout
            case ["quaestor", *arguments]:
                parse(root, "quaestor", arguments)
            case ["make", target, *_]:
                assert f"\n{target}: " in (ROOT / "Makefile").read_text()
            case ["pip", "install", *packages]:
                for package in packages:
                    if match := re.fullmatch(r"quaestor(\w+)", package):  # its brackets are gone
                        assert f"\n{match[1]} = [" in (ROOT / "pyproject.toml").read_text()
            case [] | ["export" | "curl" | "apt-get" | "uvicorn", *_]:
                pass
            case _:
                pytest.fail(f"nobody knows this command: {line}")


def parse(command: Any, name: str, arguments: list[str], parent: Any = None) -> None:
    """Raises what the command line would say of these arguments."""
    filled = [argument if not argument.endswith("...") else "1" for argument in arguments]
    context = command.make_context(name, filled, parent=parent)
    if hasattr(command, "commands"):
        rest = [*getattr(context, "_protected_args", ()), *context.args]
        if not rest:
            assert command.invoke_without_command, f"{name} does nothing by itself"
            return
        assert rest[0] in command.commands, f"{name} has no command {rest[0]}"
        parse(command.commands[rest[0]], rest[0], rest[1:], context)


@pytest.mark.parametrize("block", JSON, ids=lambda block: block.name)
def test_every_json_block_is_read(block: Block) -> None:
    """It is JSON."""
    assert json.loads(block.text)


@pytest.mark.parametrize("block", MONGOSH, ids=lambda block: block.name)
def test_mongod_accepts_each_command_for_mongosh(block: Block, mongo_url: str, prefix: str) -> None:
    """mongod accepts each command that the documents give for mongosh."""
    match = re.fullmatch(r"db\.runCommand\((?P<command>{.*})\)\n", block.text)
    assert match, "only commands are known"
    command = json.loads(re.sub(r"(\w+):", r'"\1":', match["command"]))
    with pymongo.MongoClient[Any](mongo_url) as mongo:
        mongo[prefix].create_collection(next(iter(command.values())))
        mongo[prefix].command(command)


def test_code_for_other_libraries_compiles_and_has_a_tested_successor() -> None:
    """Each block "before" is followed by one "after", which `test_every_python_block_runs` runs."""
    python = [block for block in BLOCKS if block.language == "python"]
    before = [number for number, block in enumerate(python) if block.text.startswith(BEFORE)]
    assert before
    for number in before:
        compile(python[number].text, python[number].name, "exec")
        assert python[number + 1].document == python[number].document
        assert python[number + 1].text.startswith("# after")
        assert python[number + 1].name in USES


def test_every_block_says_what_it_is() -> None:
    """Python, commands and JSON are run; only pictures and answers are text, and what stands in pages is run by nobody here."""
    said = {"python", "bash", "console", "json", "js", "text", "http", "ts", "tsx", "html"}
    assert {block.name for block in BLOCKS if block.language not in said} == set()
