"""Continuous queries over the admin API."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from quaestor import AdminApi, AdminToken, Quaestor
from quaestor.continuous.delivery.batch import ResultBatch
from quaestor.continuous.delivery.dead_letters import DeadLetter, DeadLetters
from quaestor.continuous.runs.run import close
from quaestor.tables.schema import Type
from tests.continuous.runs.world import NOON, World

pytestmark = pytest.mark.anyio

TOKEN = "a-token-of-twenty-four-characters"
SQL = "SELECT id, note FROM reminders WHERE due_at = now()"


async def test_a_query_lives_over_the_admin_api(tmp_path: Path) -> None:
    """Tried, installed, shown, changed, paused, resumed and dropped; a fault is an answer with the reason."""
    world = World(tmp_path)
    world.reminders()
    world.add("reminders", {"id": 1, "note": "x", "due_at": NOON + timedelta(seconds=1)})
    world.advance(minutes=1)
    api = AdminApi(
        quaestor=Quaestor(
            grid=False, continuous_folder=str(tmp_path), delivery_folder=str(tmp_path / "out"), clock=world.clock
        ),
        token=AdminToken(TOKEN),
    )
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(api),
        base_url="http://a/quaestor/admin",
        headers={"authorization": f"Bearer {TOKEN}"},
    ) as client:

        async def do(status: int = 200, **body: object) -> dict[str, object]:
            answer = await client.post("/continuous", json=body)
            assert answer.status_code == status, answer.text
            return dict(answer.json())

        row = {"id": 1, "note": "x"}
        assert await do(do="dry-run", text=SQL) == {"rows": [{"instant": "2026-11-28T12:00:01.000000Z", "row": row}]}
        assert (await do(do="install", name="due", text=SQL, every="1m", **{"from": "beginning"}))["state"] == "active"
        assert "orders" in str(
            (await do(400, do="install", name="bad", text="SELECT id FROM orders", every="1m"))["detail"]
        )
        assert "missing or unknown" in str((await do(400, do="pause", nam="due"))["detail"])
        assert "do is one of" in str((await do(400, do="explode", name="due"))["detail"])
        assert "sinks is a list" in str((await do(400, do="change", name="due", sinks="file:a"))["detail"])
        assert (await do(do="pause", name="due"))["state"] == "paused"
        assert (await do(do="resume", name="due"))["state"] == "active"
        assert (await do(do="change", name="due", every="1d"))["every"] == "1d"
        assert (await do(do="set-text", name="due", text=f"{SQL} AND id > 0"))["tables"] == [
            "results.due",
            "results_2.due",
        ]
        queries = (await client.get("/continuous")).json()["queries"]
        assert [(query["name"], query["every"]) for query in queries] == [("due", "1d")]
        assert (await client.get("/continuous", params={"name": "due"})).json()["progress"] is None
        assert (await client.get("/continuous/results", params={"name": "due"})).json() == {
            "rows": [],
            "next": 0,
            "complete": True,
        }
        assert (await client.get("/continuous/results", params={"name": "due", "limit": "0"})).status_code == 400
        batch = ResultBatch(query="due", run=1, instant=1, rows=[row])
        (tmp_path / "out").mkdir()
        DeadLetters(world.catalogue.root).put(
            DeadLetter(batch=batch, sink="file:due.ndjson", reason="disk", error="full", attempts=8)
        )
        (letter,) = (await client.get("/continuous/dead-letters", params={"name": "due"})).json()["dead_letters"]
        assert (letter["key"], letter["reason"], letter["rows"]) == ("due/1/0", "disk", 1)
        assert await do(do="replay", name="due") == {"delivered": 1, "failed": 0, "asked": 0}
        assert "due/1/0" in (tmp_path / "out" / "due.ndjson").read_text()
        assert (await client.get("/continuous/dead-letters", params={"name": "due"})).json() == {"dead_letters": []}
        DeadLetters(world.catalogue.root).put(
            DeadLetter(batch=batch, sink="file:due.ndjson", reason="disk", error="full", attempts=8)
        )
        assert await do(do="drop-dead-letters", name="due") == {"dropped": 1}
        assert set(await do(do="explain", text=SQL)) == {"meaning", "standard", "monotone", "incremental"}
        assert await do(do="run-once", text=SQL, at="2026-11-28T12:00:01Z") == {"rows": [row]}
        assert await do(do="run-once", text=SQL) == {"rows": []}
        assert await do(do="drop", name="due") == {"dropped": "due"}
        many = [{"name": f"due_{number}", "text": f"{SQL} AND id = {number}", "every": "1m"} for number in range(3)]
        assert await do(do="install-all", queries=many, **{"from": "beginning"}) == {"installed": 3}
        assert "installed" in str((await do(400, do="install-all", queries=many[:1]))["detail"])
        assert "line 1 is no query" in str((await do(400, do="install-all", queries=[{}]))["detail"])
        assert "queries is a list of objects" in str((await do(400, do="install-all", queries=["due"]))["detail"])
        assert (await client.get("/continuous", params={"name": "due"})).status_code == 400


async def test_orders_are_declared_and_dropped_over_the_admin_api(tmp_path: Path) -> None:
    """A declaration is used from then on, a broken order shows its counterexample, and faults name the remedy."""
    world = World(tmp_path)
    world.table("messages", id=Type.BIGINT)
    world.table("replies", message=Type.BIGINT)
    quaestor = Quaestor(grid=False, continuous_folder=str(tmp_path), clock=world.clock)
    engine = quaestor.parts.continuous.administration().engine
    api = AdminApi(quaestor=quaestor, token=AdminToken(TOKEN))
    columns = {"earlier": "messages.id", "later": "replies.message"}
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(api),
        base_url="http://a/quaestor/admin",
        headers={"authorization": f"Bearer {TOKEN}"},
    ) as client:

        async def orders() -> list[dict[str, str]]:
            return list((await client.get("/continuous/orders")).json()["orders"])

        assert await orders() == []
        answer = await client.post("/continuous", json={"do": "declare-order", **columns})
        assert (answer.status_code, await orders()) == (200, [answer.json()])
        text = "SELECT m.id FROM messages m, replies r WHERE r.message = m.id"
        query = engine.prepare(text)
        assert [str(order) for order in query.compiled.orders] == [answer.json()["order"]]
        world.add("replies", {"message": 1})
        world.add("messages", {"id": 1})
        closed = close(world.catalogue, query.tables)
        assert query.rows(1, closed.instant, closed.snapshots).rows.num_rows == 1
        ((broken,),) = ([order["broken"] for order in await orders()],)
        assert "messages with id = 1 came at" in broken
        for fault in ({"earlier": "messages.size"}, {"earlier": "messages"}, {"earlier": "notes.id"}):
            answer = await client.post("/continuous", json={"do": "declare-order", **columns, **fault})
            assert answer.status_code == 400, answer.text
        for status in (200, 400):
            assert (await client.post("/continuous", json={"do": "drop-order", **columns})).status_code == status
        assert await orders() == []


async def test_the_service_and_the_admin_api_share_their_engine(tmp_path: Path) -> None:
    """One catalogue and one DuckDB in a process."""
    World(tmp_path).reminders()
    quaestor = Quaestor(grid=False, continuous_folder=str(tmp_path))
    shared = quaestor.parts.continuous.administration()
    assert quaestor.parts.continuous.administration() is shared
    api = AdminApi(quaestor=quaestor, token=AdminToken(TOKEN))
    await quaestor.start()
    try:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(api),
            base_url="http://a/quaestor/admin",
            headers={"authorization": f"Bearer {TOKEN}"},
        ) as client:
            body = {"do": "install", "name": "due", "text": SQL, "every": "1m"}
            assert (await client.post("/continuous", json=body)).status_code == 200
        assert [query.name for query in shared.installed.all()] == ["due"]
    finally:
        await quaestor.stop()
