"""Service of continuous queries end to end, with an injected clock and real receivers."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from standardwebhooks import Webhook

from quaestor.continuous.delivery.batch import ResultBatch
from quaestor.continuous.delivery.courier import Courier
from quaestor.continuous.delivery.dead_letters import DeadLetters
from quaestor.continuous.delivery.file import FileSink
from quaestor.continuous.delivery.mail import MailServer, MailSink
from quaestor.continuous.delivery.networks import Networks
from quaestor.continuous.delivery.sink import DeliveryError, Sink
from quaestor.continuous.delivery.webhook import WebhookSink
from quaestor.continuous.engine import Evaluated
from quaestor.continuous.functions import DeclaredQueries, FunctionSink
from quaestor.continuous.hosting import sinks_of
from quaestor.continuous.installed import InstalledQuery, State
from quaestor.continuous.runs import deliveries
from quaestor.continuous.runs.deliveries import deliver
from quaestor.continuous.schedule.queue import QUARANTINE_AFTER
from quaestor.continuous.service import AT_ONCE, ContinuousService, ServiceParts
from quaestor.errors import ConfigurationError
from quaestor.observability.hooks import FailureSeen
from quaestor.observability.telemetry import Telemetry
from quaestor.settings.continuous import ContinuousSettings
from quaestor.tables.schema import Type
from quaestor.tables.storage import FolderStorage
from tests.continuous.delivery.receivers import HANG, KEY, mailbox, receiver
from tests.continuous.runs.plain_engine import EXPIRING, REMINDERS, UNANSWERED, PlainQuery
from tests.continuous.runs.world import NOON, World

pytestmark = pytest.mark.anyio


class Served(World):
    """World with a service whose sinks a test names."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "tables")
        self.folder = folder
        self.sinks: dict[str, Sink] = {
            "file:results.ndjson": FileSink("file:results.ndjson", folder / "results.ndjson")
        }
        self.telemetry = Telemetry()
        self.letters = DeadLetters(FolderStorage(folder))
        self.service = self.begin()

    def begin(self) -> ContinuousService:
        return ContinuousService(
            ServiceParts(
                catalogue=self.catalogue, installed=self.installed, engine=self.engine, sink_of=self._sink,
                courier=Courier(self.letters, self.telemetry, attempts=2, sleep=self._no_sleep), telemetry=self.telemetry,
                clock=self.clock,
            )
        )  # fmt: skip

    async def _no_sleep(self, pause_s: float) -> None:
        pass

    def _sink(self, address: str) -> Sink | None:
        if address not in self.sinks:
            raise ConfigurationError(f"{address} needs a setting")
        return self.sinks[address]

    async def after(self, **delta: float) -> None:
        """Move the clock, and run what is due."""
        self.advance(**delta)
        await self.service.run_due()

    def lines(self) -> list[dict[str, Any]]:
        path = self.folder / "results.ndjson"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def value(self, name: str, **labels: str) -> float:
        return self.telemetry.families.registry.get_sample_value(f"quaestor_continuous_{name}", labels) or 0.0


@pytest.fixture
def served(tmp_path: Path) -> Served:
    world = Served(tmp_path)
    world.reminders()
    return world


def due_in(number: int, **delta: float) -> dict[str, Any]:
    return {"id": number, "note": f"note {number}", "due_at": NOON + timedelta(**delta)}


async def test_reminders_by_webhook_mail_and_file(served: Served) -> None:
    """Each reminder reaches each receiver once, at the first run after its time."""
    served.add("reminders", due_in(1, minutes=1, seconds=30), due_in(2, minutes=3))
    async with receiver() as server, mailbox() as box:
        address = f"http://127.0.0.1:{server.port}/"
        hook = WebhookSink(address, key=SecretStr(KEY), networks=Networks(("127.0.0.0/8",)))
        mail = MailSink(
            "ann@shop.example", sender="q@shop.example", server=MailServer.from_url(f"smtp://127.0.0.1:{box.port}")
        )
        served.sinks |= {address: hook, mail.name: mail}
        served.install(sinks=(address, mail.name, "file:results.ndjson"))
        for _ in range(8):
            await served.after(seconds=30)
    bodies = [Webhook(KEY).verify(body, fields)["data"] for fields, body in server.requests]
    keyed = [(entry["key"], entry["row"]["note"]) for body in bodies for entry in body["rows"]]
    assert [note for _, note in keyed] == ["note 1", "note 2"]
    assert [(line["key"], line["row"]["note"]) for line in served.lines()] == keyed
    assert [message["x-quaestor-key"] for message in box.messages] == [key for key, _ in keyed]
    assert "note: note 1" in box.messages[0].get_content()
    assert NOON + timedelta(minutes=2) <= NOON + timedelta(
        microseconds=bodies[0]["instant"] - int(NOON.timestamp()) * 10**6
    )


async def test_offers_that_expire_are_named_as_they_expire(served: Served) -> None:
    """No write happens at that time; the clock alone decides."""
    served.table("offers", id=Type.BIGINT, expires=Type.TIMESTAMP)
    served.add(
        "offers", {"id": 1, "expires": NOON + timedelta(hours=1)}, {"id": 2, "expires": NOON - timedelta(hours=1)}
    )
    served.install("expired", EXPIRING, every="10m", sinks=("file:results.ndjson",))
    await served.after(minutes=50)
    assert served.lines() == []
    await served.after(minutes=20)
    await served.after(hours=20)
    assert [line["row"] for line in served.lines()] == [{"id": 1}]


async def test_messages_older_than_two_weeks_without_a_reply(served: Served) -> None:
    """A reply within the two weeks keeps a message out for ever; a late reply changes nothing. Weekly and hourly are equal."""
    served.table("messages", id=Type.BIGINT)
    served.table("replies", message=Type.BIGINT)
    served.add("messages", {"id": 1}, {"id": 2})
    served.install("weekly", UNANSWERED, every="1w", sinks=("file:results.ndjson",))
    served.install("hourly", UNANSWERED, every="1h")
    await served.after(days=3)
    served.add("replies", {"message": 1})
    await served.after(days=12)
    served.add("replies", {"message": 2})
    for _ in range(5):
        await served.after(days=6)
    assert [line["row"] for line in served.lines()] == [{"id": 2}]
    assert [row["id"] for row in served.results("hourly")] == [2]


async def test_a_receiver_that_hangs_delays_neither_runs_nor_other_receivers(served: Served) -> None:
    """Its batch becomes a dead letter, and later results reach it again."""
    served.add("reminders", due_in(1, minutes=1), due_in(2, minutes=2))
    async with receiver(HANG, HANG) as server:
        address = f"http://127.0.0.1:{server.port}/"
        served.sinks[address] = WebhookSink(
            address, key=SecretStr(KEY), networks=Networks(("127.0.0.0/8",)), timeout_s=0.3
        )
        served.install(sinks=(address, "file:results.ndjson"))
        await served.after(minutes=1, seconds=1)
        assert [letter.batch.rows[0]["id"] for letter in served.letters.list()] == [1]
        await served.after(minutes=2)
        assert len(server.requests) == 3
    assert [line["row"]["id"] for line in served.lines()] == [1, 2]


async def test_results_of_a_time_without_a_process_are_delivered_at_the_start(served: Served) -> None:
    """Also results that were published and not delivered before the end."""
    served.add("reminders", due_in(1, seconds=1), due_in(2, minutes=5))
    served.install(sinks=("file:results.ndjson",))
    served.advance(minutes=1)
    served.run()
    served.advance(days=1)
    served.service = served.begin()
    await served.after()
    await served.after(minutes=2)
    assert [line["row"]["id"] for line in served.lines()] == [1, 2]


async def test_a_bad_query_is_quarantined_with_its_reason_and_the_others_go_on(served: Served) -> None:
    """The reason outlives the process; a resumed query runs again, and nothing of the time between is lost."""
    served.install("good", sinks=("file:results.ndjson",))
    served.install("bad", "BAD")
    for _ in range(QUARANTINE_AFTER + 3):
        await served.after(minutes=1)
    bad = served.installed.get("bad")
    assert (bad.state, bad.reason) == (State.QUARANTINED, "BAD is no SQL")
    assert served.value("runs_total", outcome="failed") == QUARANTINE_AFTER
    assert served.value("queries", state="quarantined") == 1
    served.add("reminders", due_in(1, minutes=9))
    served.installed.change_text("bad", REMINDERS, start=0)
    await served.after(minutes=5)
    await served.after(minutes=5)
    assert [row["id"] for row in served.results("bad")] == [1]
    assert [line["row"]["id"] for line in served.lines()] == [1]


async def test_a_paused_query_returns_everything_after_its_pause(served: Served) -> None:
    served.install(sinks=("file:results.ndjson",))
    await served.after(minutes=1)
    served.installed.pause("due")
    served.add("reminders", due_in(1, minutes=5), due_in(2, minutes=10))
    await served.after(minutes=20)
    assert served.lines() == []
    served.installed.resume("due")
    await served.after(minutes=1)
    assert [line["row"]["id"] for line in served.lines()] == [1, 2]


async def test_a_period_changes_at_run_time(served: Served) -> None:
    """From weekly to every minute, without a restart; a dropped query runs no more."""
    served.install(every="1w", start=served.clock() * 1000, sinks=("file:results.ndjson",))
    served.add("reminders", due_in(1, minutes=1))
    await served.after(minutes=5)
    assert served.lines() == []
    served.installed.change("due", lambda query: replace(query, every="1m"))
    await served.after(minutes=2)
    assert [line["row"]["id"] for line in served.lines()] == [1]
    served.installed.drop("due")
    await served.after(minutes=5)
    assert served.value("runs_total", outcome="failed") == 0


async def test_a_sink_without_its_setting_keeps_its_results(served: Served) -> None:
    """The failure lasts until an operator mends it, and names the query."""
    served.add("reminders", due_in(1, seconds=1))
    served.install(sinks=("mailto:ann@shop.example", "file:results.ndjson"))
    await served.after(minutes=1)
    assert served.telemetry.lasting == ["mailto:ann@shop.example needs a setting"]
    assert [line["row"]["id"] for line in served.lines()] == [1]
    served.sinks["mailto:ann@shop.example"] = FileSink("mailto:ann@shop.example", served.folder / "mended")
    await served.after(minutes=1)
    assert len((served.folder / "mended").read_text().splitlines()) == 1


async def test_a_fault_of_one_delivery_stops_no_other(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that cannot be read for a sink is reported, and tried again after the next run."""
    seen: list[FailureSeen] = []
    served.telemetry.hooks.failures.append(seen.append)
    served.sinks["file:other"] = FileSink("file:other", served.folder / "other")
    served.install("bad", sinks=("file:other",))
    served.install("good", sinks=("file:results.ndjson",))
    served.add("reminders", due_in(1, seconds=1))
    faults = [MemoryError("no room")] * 2

    async def faulty(query: InstalledQuery, *others: Any) -> int:
        if query.name == "bad" and faults:
            raise faults.pop()
        return await deliver(query, *others)

    monkeypatch.setattr("quaestor.continuous.service.deliver", faulty)
    for _ in range(4):
        await served.after(minutes=1)
    assert [failure.name for failure in seen] == ["delivery.stopped"] * 2
    assert [line["query"] for line in served.lines()] == ["good"]
    assert [json.loads(line)["query"] for line in (served.folder / "other").read_text().splitlines()] == ["bad"]


async def test_slow_queries_leave_the_threads_of_the_process_free(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queries beyond the threads for runs wait, and count as late from their due time until they begin."""
    seen: list[FailureSeen] = []
    served.telemetry.hooks.failures.append(seen.append)
    names = [f"q{number:02}" for number in range(40)]
    go_on, begun = threading.Event(), threading.Semaphore(0)
    execute = PlainQuery.rows

    def rows(*arguments: Any) -> Evaluated:
        begun.release()
        assert go_on.wait(60)
        return execute(*arguments)

    monkeypatch.setattr(PlainQuery, "rows", rows)
    for name in names:
        served.install(name, at_most="1h")
    async with asyncio.TaskGroup() as tasks:
        await served.service.step(tasks)
        try:
            async with asyncio.timeout(60):
                for _ in range(AT_ONCE):
                    await asyncio.to_thread(begun.acquire)
            served.advance(hours=2)
        finally:
            go_on.set()
    late = {failure.fields["query"] for failure in seen if failure.name == "continuous.late"}
    assert late == set(names[AT_ONCE:])


async def test_a_new_sink_receives_old_results_in_pieces(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory holds one file of results at a time, and the order stays."""
    served.add("reminders", *(due_in(number, minutes=number) for number in range(1, 6)))
    served.install()
    for _ in range(6):
        await served.after(minutes=1)
    sizes: list[int] = []
    read = deliveries._pending

    def pending(*arguments: Any) -> list[dict[str, Any]]:
        rows = read(*arguments)
        sizes.append(len(rows))
        return rows

    monkeypatch.setattr(deliveries, "_pending", pending)
    served.installed.change("due", lambda query: replace(query, sinks=("file:results.ndjson",)))
    await served.after(minutes=1)
    assert [line["row"]["id"] for line in served.lines()] == [1, 2, 3, 4, 5]
    assert max(sizes) == 1


def test_a_file_has_one_sink_in_a_process(tmp_path: Path) -> None:
    """Each delivery would otherwise read the whole file again."""
    sink_of = sinks_of(ContinuousSettings(delivery_folder=str(tmp_path)), None)
    assert sink_of("file:a") is sink_of("file:a") is not sink_of("file:b")
    assert sink_of("function:f") is None


async def test_queries_run_after_a_clock_went_back(served: Served) -> None:
    """Also in a process that begins after it: the last run lies in its future."""
    served.install(sinks=("file:results.ndjson",))
    await served.after(minutes=1)
    await served.after(days=400)
    served.advance(days=-400)
    for number in (1, 2):
        before = served.value("runs_total", outcome="published")
        for _ in range(3):
            await served.after(minutes=2)
        assert served.value("runs_total", outcome="published") >= before + 2, number
        served.service = served.begin()


async def test_a_time_after_the_year_9999_is_delivered_as_text(served: Served) -> None:
    """No datetime of Python holds it. The other rows of the batch keep their form."""
    text = REMINDERS.replace("note", "ts + to_years(IF(id = 1, 20000, 0)) - to_years(IF(id = 3, 3000, 0)) AS then")
    served.install(text=text, sinks=("file:results.ndjson",))
    served.add("reminders", *(due_in(number, minutes=1) for number in (1, 2, 3)))
    await served.after(minutes=2)
    years = {line["row"]["id"]: line["row"]["then"].partition("-11-28T12")[0] for line in served.lines()}
    assert years == {1: "+22026", 2: "2026", 3: "-0974"}


async def test_a_declared_function_receives_results_from_its_declaration_on(served: Served) -> None:
    """A function that raises gets the batch again; another text is a new query; an equal declaration changes nothing."""
    received: list[ResultBatch] = []

    async def remind(batch: ResultBatch) -> None:
        received.append(batch)
        if len(received) == 1:
            raise RuntimeError("not now")

    declared = DeclaredQueries()
    declared.add(REMINDERS, every="1m", name="remind", at_most="", function=remind)
    with pytest.raises(ConfigurationError, match="cannot name"):
        declared.add(REMINDERS, every="1m", name="remind", at_most="", function=remind)
    served.add("reminders", due_in(1, seconds=1), due_in(2, minutes=5))
    served.advance(minutes=1)
    for _ in range(2):
        declared.install(served.installed, now=served.clock() * 1000)
    assert declared.sink_of("function:other") is None
    sink = declared.sink_of("function:remind")
    assert sink is not None
    served.sinks[sink.name] = sink
    for _ in range(6):
        await served.after(minutes=1)
    assert [[row["id"] for row in batch.rows] for batch in received] == [[2], [2]]
    assert received[0].key == received[1].key

    again = DeclaredQueries()
    again.add(EXPIRING, every="2m", name="remind", at_most="1h", function=remind)
    again.install(served.installed, now=served.clock() * 1000)
    installed: InstalledQuery = served.installed.get("remind")
    assert (installed.text, installed.every, installed.at_most) == (EXPIRING, "2m", "1h")


async def test_a_declared_text_that_changes_loses_no_time(served: Served) -> None:
    """The new text begins where the old one ended. Other spaces and comments make no new query."""
    received: list[int] = []

    async def remind(batch: ResultBatch) -> None:
        received.extend(row["id"] for row in batch.rows)

    def declare(text: str) -> None:
        declared = DeclaredQueries()
        declared.add(text, every="1m", name="remind", at_most="", function=remind)
        declared.install(served.installed, now=served.clock() * 1000)

    declare(REMINDERS)
    served.sinks["function:remind"] = FunctionSink("remind", remind)
    served.add("reminders", due_in(1, minutes=1), due_in(2, minutes=30), due_in(3, minutes=70))
    await served.after(minutes=5)
    served.advance(hours=1)
    declare(f"{REMINDERS.replace(' FROM', chr(10) + '  from')} -- due now")
    assert served.installed.get("remind").tables == ("results.remind",)
    declare(f"{REMINDERS} AND id > 0")
    assert served.installed.get("remind").tables == ("results.remind", "results_2.remind")
    served.service = served.begin()
    await served.after(minutes=1)
    await served.after(minutes=10)
    assert received == [1, 2, 3]


async def test_a_function_that_hangs_fails_after_its_time() -> None:
    """A TimeoutError of the function itself is another failure."""

    async def hang(batch: ResultBatch) -> None:
        await asyncio.Event().wait()

    async def times_out(batch: ResultBatch) -> None:
        raise TimeoutError

    reasons = []
    for function, timeout_s in ((hang, 0.01), (times_out, 60.0)):
        with pytest.raises(DeliveryError) as raised:
            await FunctionSink("f", function, timeout_s=timeout_s).deliver(
                ResultBatch(query="q", run=1, instant=1, rows=[])
            )
        reasons.append(raised.value.reason)
    assert reasons == ["timeout", "function"]


async def test_the_service_runs_until_it_is_cancelled(served: Served) -> None:
    """Its pauses end at the next due time, and are never longer than the time between two looks."""
    pauses: list[float] = []
    received: asyncio.Queue[ResultBatch] = asyncio.Queue()

    async def pause(pause_s: float) -> None:
        pauses.append(pause_s)
        served.advance(seconds=pause_s)
        await asyncio.sleep(0)

    served.sinks["function:f"] = FunctionSink("f", received.put)
    served.install(start=served.clock() * 1000, every="30s", sinks=("function:f",))
    served.add("reminders", due_in(1, seconds=40))
    service = ContinuousService(replace(served.service._parts, pause=pause), look_s=7.0)
    running = asyncio.create_task(service.keep_running())
    async with asyncio.timeout(60):
        batch = await received.get()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert [row["id"] for row in batch.rows] == [1]
    assert (max(pauses), pauses[:5]) == (7.0, [7.0, 7.0, 7.0, 7.0, 2.0])
