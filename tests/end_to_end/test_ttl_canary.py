"""A canary of lifetimes on real parts: two app processes' worth of Quaestor judge together what they have counted of it."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import httpx
import pymongo
import pytest
from fastapi import FastAPI
from pymongo import AsyncMongoClient

from quaestor import Quaestor
from quaestor.cli import main
from quaestor.clock import system_clock
from quaestor.event_layer.connecting import event_layer
from quaestor.middleware import QuaestorMiddleware
from quaestor.model import GridShape
from quaestor.ports import EventLayer
from quaestor.redis.clients import shared_client
from quaestor.runtime import services
from quaestor.store.canary_reports import RedisCanaryReports
from quaestor.ttl.canary import Canary, Prediction
from quaestor.ttl.canary_counts import Counts, total
from quaestor.ttl.canary_watch import ProcessCounts
from quaestor.ttl.chosen import ChosenEstimators
from quaestor.ttl.parameters import TtlParameters, Tuning
from quaestor.ttl.published import PublishedParameters
from tests.end_to_end.test_distributed import grid
from tests.support import PATIENCE_S, PATIENT, eventually

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("patient_redis")]

PAGES = 60
SLOW_S = 180.0
"""Sixty answers by two processes, after as many writes, while other tests run."""
ONE_CELL = GridShape(query_partitions=1, write_partitions=1)
MOMENT = TtlParameters(default=Tuning(estimator="static", static_ms=1, ttl_min_ms=1))
LONG = TtlParameters(default=Tuning(estimator="static", static_ms=600_000))
CHOSEN = TtlParameters(default=Tuning(quantile=0.55))
SAME = {name: Prediction(0.0, 0.0, 0.5, 0.5) for name in ("hits", "invalidations", "stale")}


class Process:
    """One app process: pages out of a collection, each a query of its own."""

    def __init__(self, mongo_url: str, redis_url: str, deployment: str) -> None:
        self.quaestor = Quaestor(redis_url=redis_url, deployment=deployment, trust_new_sketch=True, **PATIENT)
        self.client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(
            mongo_url, event_listeners=[self.quaestor.capture], serverSelectionTimeoutMS=120_000
        )
        app = FastAPI()
        app.add_middleware(QuaestorMiddleware, quaestor=self.quaestor)

        @app.get("/pages/{key}")
        async def page(key: int) -> dict[str, Any] | None:
            return await self.client[deployment].pages.find_one({"_id": key})

        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://site")

    @property
    def estimator(self) -> ChosenEstimators:
        estimator = self.quaestor.parts.estimator
        assert isinstance(estimator, ChosenEstimators)
        return estimator

    async def shows(self, n: int) -> bool:
        """Whether every page is as it was written last."""
        answers = [await self.http.get(f"/pages/{key}") for key in range(PAGES)]
        return all(answer.json()["n"] == n for answer in answers)

    async def end(self) -> None:
        await self.http.aclose()
        await self.quaestor.stop()
        await self.client.close()


async def test_a_canary_that_is_worse_than_predicted_is_rolled_back_in_every_process(
    mongo_url: str, redis_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies of its results live on for ten minutes while each is written again and again; predicted was that nothing changes.
    Once, with the reason in the audit trail and the metrics, by what both processes have seen."""
    monkeypatch.setattr(services, "_TUNED_EVERY_S", 0.05)
    published = PublishedParameters(_layer(redis_url, prefix), scope=prefix)
    published.publish(MOMENT, base=0, by="ann", now_ms=system_clock())
    canary = Canary(parameters=LONG, share=50, predicted=SAME, after=100, hold_ms=0)
    processes = [Process(mongo_url, redis_url, prefix) for _ in range(2)]
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as writer, grid(mongo_url, redis_url, prefix, ONE_CELL):
        pages = writer[prefix].pages
        pages.insert_many([{"_id": key, "n": 0} for key in range(PAGES)])
        try:
            for process in processes:
                await eventually(lambda process=process: process.shows(0), within_s=SLOW_S)  # type: ignore[misc]
                await eventually(lambda process=process: process.estimator.parameters == MOMENT)  # type: ignore[misc]
            published.begin_canary(canary, base=1, by="ann", now_ms=system_clock())
            for process in processes:
                await eventually(lambda process=process: process.estimator.canary is not None)  # type: ignore[misc]
            n = 0
            while published.history()[-1].number == 2 and n < 40:
                n += 1
                pages.update_many({}, {"$set": {"n": n}})
                for process in processes:
                    await eventually(lambda process=process, n=n: process.shows(n), within_s=SLOW_S)  # type: ignore[misc]
            await eventually(lambda: published.history()[-1].number == 3)
            for process in processes:
                await eventually(lambda process=process: process.estimator.canary is None)  # type: ignore[misc]
            ended = published.history()[-1]
            assert (ended.parameters, ended.canary) == (MOMENT, None)
            assert ended.by.startswith("quaestor (")
            assert re.match(r"rolled back: (invalidations|stale): \d\.\d{4} \(", ended.why)  # whichever is seen first
            exposed = [process.quaestor.telemetry.exposition().decode() for process in processes]
            assert (
                sum('quaestor_ttl_canaries_ended_total{how="rolled-back"} 1.0' in metrics for metrics in exposed) == 1
            )
            assert all("quaestor_ttl_canary_share 0.0" in metrics for metrics in exposed)
            assert len(published.history()) == 4
        finally:
            for process in processes:
                await process.end()
            writer.drop_database(prefix)


async def test_a_loss_that_no_process_sees_alone_ends_a_canary_in_all_processes(
    shared_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has too few observations; their sum in Redis (a server, a cluster) is enough. A process that has ended counts too."""
    monkeypatch.setattr(services, "_TUNED_EVERY_S", 0.05)
    published = PublishedParameters(_layer(shared_url, prefix), scope=prefix)
    canary = Canary(parameters=CHOSEN, share=50, predicted=SAME, after=100, hold_ms=0)
    published.begin_canary(canary, base=0, by="ann", now_ms=system_clock())
    few = ProcessCounts(own=Counts(requests=90, lifetimes=90), rest=_counted(50), cdn=False)
    client = shared_client(shared_url, timeout_s=PATIENCE_S)
    try:
        await RedisCanaryReports(client, scope=prefix).tell(1, "ended", few)
    finally:
        await client.aclose()
    processes = [Quaestor(redis_url=shared_url, deployment=prefix, grid=False, explicit=True) for _ in range(2)]
    estimators = [process.parts.estimator for process in processes]
    try:
        for process in processes:
            await process.start()
        for estimator in estimators:
            assert isinstance(estimator, ChosenEstimators)
            await eventually(lambda estimator=estimator: estimator.canary is not None)  # type: ignore[misc]
        assert len(published.history()) == 2
        for estimator in estimators:
            assert isinstance(estimator, ChosenEstimators)
            if estimator.canary is not None:
                estimator.canary.own.add(Counts(requests=50, lifetimes=50))
                estimator.canary.rest.add(_counted(500))
        await eventually(lambda: len(published.history()) == 3)
        for estimator in estimators:
            assert isinstance(estimator, ChosenEstimators)
            await eventually(lambda estimator=estimator: estimator.canary is None)  # type: ignore[misc]
        ended = published.history()[-1]
        assert (ended.parameters, ended.canary, ended.by.startswith("quaestor (")) == (None, None, True)
        assert ended.why.startswith("rolled back: hits: 0.0000 (")
        exposed = [process.telemetry.exposition().decode() for process in processes]
        assert sum('quaestor_ttl_canaries_ended_total{how="rolled-back"} 1.0' in metrics for metrics in exposed) == 1
        assert all("quaestor_ttl_canary_share 0.0" in metrics for metrics in exposed)
    finally:
        for process in processes:
            await process.stop()


def call(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main.main(list(arguments))
    return int(ended.value.code or 0)


def trace(path: Path, *, results: int = 40, rounds: int = 20) -> None:
    """Each result filled, served and changed again and again."""
    lines = ['{"format":"quaestor trace","version":1,"started_ms":0,"share":1}']
    for at_ms in range(0, rounds * 10_000, 10_000):
        for i in range(results):
            lines.append(json.dumps(["f", at_ms, f"r{i}", [f"q{i}"], 5_000, None, 0.1, "db.items"]))
            lines += [json.dumps(["s", at_ms + second * 1_000, f"r{i}", 2]) for second in (1, 3, 6)]
            lines.append(json.dumps(["c", at_ms + 9_000, f"q{i}"]))
    path.write_text("\n".join([*lines, json.dumps(["e", len(lines), False])]) + "\n")


async def test_a_canary_is_begun_shown_promoted_and_undone_by_the_command_line(
    redis_url: str, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With what is predicted beside it; what cannot be is refused in one sentence, and nothing is changed."""
    monkeypatch.setattr(services, "_TUNED_EVERY_S", 0.05)
    quaestor = Quaestor(redis_url=redis_url, deployment=prefix, grid=False, explicit=True)
    estimator = quaestor.parts.estimator
    assert isinstance(estimator, ChosenEstimators)
    published = PublishedParameters(_layer(redis_url, prefix), scope=prefix)
    chosen, path, short = tmp_path / "lifetimes.json", tmp_path / "trace", tmp_path / "short"
    chosen.write_text(CHOSEN.encoded())
    trace(path)
    trace(short, results=2, rounds=1)
    where = ("--redis-url", redis_url, "--deployment", prefix)

    async def tell(*arguments: str) -> tuple[int, str]:
        code = await asyncio.to_thread(call, "ttl", *arguments, *where)
        return code, "".join(capsys.readouterr())

    await quaestor.start()
    try:
        begin = ("apply", str(chosen), "--on", "0", "--by", "ann", "--share", "10", "--trace", str(path))
        for arguments, said in (
            (("apply", str(chosen), "--on", "0", "--share", "10"), "name one with --trace"),
            (("apply", str(chosen), "--on", "0", "--promote"), "belong to a canary"),
            ((*begin[:-1], str(short)), "record for longer"),
            ((*begin, "--after", "7"), "after of a canary must be"),
            ((*begin, "--hold", "-1"), "--hold is a number"),
            ((*begin, "--hits-at-least", "1"), "below the guard hits_at_least of 1"),
            (("apply", str(chosen), "--on", "0", "--stale-at-most", "0.1"), "belong to a canary"),
            (("promote",), "there is no canary"),
        ):
            code, text = await tell(*arguments)
            assert (code, said in text) == (2, True), text
        assert len(published.history()) == 1
        code, text = await tell(*begin, "--hits-at-least", "0.05")
        assert code == 0
        assert "guard: hits_at_least 0.05" in text
        assert "10 % of the results" in text
        assert re.search(r"hits: 0\.\d{4} -> 0\.\d{4}; log odds ratio", text)
        await eventually(lambda: estimator.canary is not None)
        assert estimator.parameters != CHOSEN  # the rest goes on with the settings
        code, text = await tell("apply", str(chosen), "--on", "0", "--by", "bob")
        assert (code, "ann has applied other parameters meanwhile" in text) == (2, True)
        code, text = await tell("promote", "--by", "bob")
        assert (code, "of 2000 requests were seen" in text) == (2, True)
        assert estimator.canary is not None
        estimator.canary.own.add(_counted(2_000))
        estimator.canary.rest.add(_counted(20_000))

        async def seen() -> bool:
            text = (await tell("canary"))[1]
            return "2000 requests: inside" in text and "guard hits at least 0.05: kept" in text

        await eventually(seen)
        code, text = await tell("promote", "--by", "bob")
        assert (code, "2 at" in text, "by bob" in text) == (0, True, True)
        await eventually(lambda: estimator.canary is None and estimator.parameters == CHOSEN)
        assert "there is no canary; 2 counts for all results" in (await tell("canary"))[1]
        assert (await tell("rollback", "--by", "bob"))[0] == 0
        await eventually(lambda: estimator.parameters != CHOSEN)
        lines = [line for line in (await tell("history"))[1].splitlines() if " at " in line and " by " in line]
        assert [line.split(":")[0].rpartition(" by ")[2] for line in lines] == ["-", "ann", "bob", "bob"]
        assert "10 % of the results: " in lines[1]
    finally:
        await quaestor.stop()


async def test_counts_of_processes_stay_when_they_end_and_nonsense_does_not_count(redis_url: str, prefix: str) -> None:
    client = shared_client(redis_url, timeout_s=PATIENCE_S)
    reports = RedisCanaryReports(client, scope=prefix)
    for process, requests in (("a", 5), ("b", 7), ("a", 6)):
        await reports.tell(3, process, ProcessCounts(own=_counted(requests), rest=_counted(0), cdn=False))
    for nonsense in (b"\xff", b"{", b"[]", b"[" * 100_000, b'{"version": 9}'):
        await client.execute_command("HSET", f"quaestor:{{{prefix}:ttl}}:canary:3", b"n%d" % len(nonsense), nonsense)
    assert total(report.own for report in await reports.all(3)).requests == 13
    assert await reports.all(4) == []
    await client.aclose()


def _counted(requests: int) -> Counts:
    return Counts(requests=requests, hits=requests * 9 // 10, lifetimes=requests // 10, invalidations=requests // 100)


def _layer(redis_url: str, deployment: str) -> EventLayer:
    return event_layer(redis_url, deployment)
