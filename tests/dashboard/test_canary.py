"""Canaries on the dashboard: begun with what the trace predicts, shown with what was counted, promoted, rolled back, refused."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis

from quaestor import AdminToken, Dashboard, Quaestor
from quaestor.dashboard import live, standalone
from quaestor.middleware import QuaestorMiddleware
from quaestor.runtime import services
from quaestor.settings import Settings
from quaestor.ttl.baselines import StaticTtl
from quaestor.ttl.canary_counts import Counts
from quaestor.ttl.chosen import ChosenEstimators
from quaestor.ttl.recording import TraceRecorder
from tests.dashboard.running import HERE, OPERATOR, TOKEN, VIEWER, lifespan, plain, watched
from tests.end_to_end.test_ttl_canary import trace
from tests.raw_asgi import answered, exchanged, scope_of
from tests.support import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("patient_redis")]

CHOSEN = {"default": {"quantile": 0.55}}
BEGIN = {"by": "ann", "base": 0, "parameters": CHOSEN, "share": 10}
GOOD = Counts(requests=2_000, hits=1_800, lifetimes=200, invalidations=20)
BAD = Counts(requests=2_000, hits=100, lifetimes=200, invalidations=20)
ENDS = ("promote", "rollback")


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes look at what is published, and dashboards at them, many times a second."""
    monkeypatch.setattr(services, "_TUNED_EVERY_S", 0.05)
    monkeypatch.setattr(live, "EVERY_S", 0.05)


@asynccontextmanager
async def traced(folder: Path, *, short: bool = False, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an app with a dashboard and a recorded trace, from which little can be said if it is short."""
    trace(folder / "trace-4711", **({"results": 2, "rounds": 1} if short else {}))
    settings = {"trace_file": str(folder / "trace-{pid}")} | options.pop("settings", {})
    async with watched(settings=settings, **options) as client:
        yield client


def estimator(client: httpx.AsyncClient) -> ChosenEstimators:
    held = client._transport.app.engine.parts.estimator  # type: ignore[attr-defined]
    inner = held.inner if isinstance(held, TraceRecorder) else held
    assert isinstance(inner, ChosenEstimators)
    return inner


async def has_seen(client: httpx.AsyncClient, own: Counts, rest: Counts) -> None:
    """Have the client's process count these, as soon as it has taken the canary up."""
    await eventually(lambda: estimator(client).canary is not None)
    arm = estimator(client).canary
    assert arm is not None
    arm.own.add(own)
    arm.rest.add(rest)


async def called(client: httpx.AsyncClient, path: str, body: Any, headers: Any = OPERATOR) -> httpx.Response:
    return await client.post(f"{HERE}/{path}", headers=headers, json=body, timeout=None)


async def state(client: httpx.AsyncClient) -> dict[str, Any]:
    answer: dict[str, Any] = (await client.get(f"{HERE}/parameters", headers=VIEWER)).json()
    return answer


async def shown(client: httpx.AsyncClient) -> Any:
    return (await client.get(f"{HERE}/data", headers=OPERATOR)).json()["canary"]


async def test_every_process_shows_a_canary_and_any_of_them_promotes_it(
    shared_url: str, prefix: str, tmp_path: Path
) -> None:
    """Begun at one, counted at two, shown by both and by the command's dashboard, with the prediction, the interval and the band;
    promoted when enough was seen, not before; on a server and on a cluster."""
    settings = {"redis_url": shared_url, "deployment": prefix}
    alone = standalone.application(Settings(**settings), token=AdminToken(TOKEN), traces="", read_only=False)  # type: ignore[arg-type]
    async with (
        traced(tmp_path, settings=settings) as first,
        watched(settings=settings) as other,
        lifespan(alone),
        httpx.AsyncClient(transport=httpx.ASGITransport(alone), base_url="http://d.test") as third,  # type: ignore[arg-type]
    ):
        begun = await called(first, "canary", BEGIN | {"after": 1_000, "hold_ms": 5_000})
        assert begun.status_code == 200, begun.text
        canary = begun.json()["canary"]
        assert [canary[name] for name in ("by", "share", "after", "hold_ms", "promote")] == [
            "ann",
            10,
            1_000,
            5_000,
            False,
        ]
        assert canary["predicted"].keys() == {"hits", "invalidations", "stale"}
        assert canary["delta_ms"] == 10_000
        assert begun.json()["parameters"] != canary["parameters"]  # the others go on as before

        async def waits() -> bool:
            return [(await shown(each) or {}).get("number") for each in (first, other, third)] == [1, 1, 1]

        await eventually(waits)
        early = await called(other, "promote", {"by": "bob", "base": 1})
        assert (early.status_code, "0 of 1000 requests were seen" in early.json()["detail"]) == (400, True)
        await has_seen(first, GOOD, GOOD)
        await has_seen(other, GOOD, GOOD)

        async def inside() -> bool:
            answer = [await shown(each) for each in (first, other, third)]
            return all(each["judgement"]["verdict"] == "inside" and not each["hindrance"] for each in answer)

        await eventually(inside)
        answer = await shown(third)
        assert (answer["judgement"]["requests"], answer["rest"], answer["cdn"]) == (4_000, 4_000, False)
        figure = answer["judgement"]["figures"][0]
        assert (figure["name"], figure["canary"], figure["rest"], figure["observed"]) == ("hits", 0.9, 0.9, 4_000)
        assert figure["interval"][0] < 0.9 < figure["interval"][1]
        assert figure["band"][0] < figure["band"][1]
        promoted = await called(third, "promote", {"by": "bob", "base": 1})
        assert promoted.status_code == 200, promoted.text
        assert (promoted.json()["number"], promoted.json()["canary"]) == (2, None)
        assert promoted.json()["parameters"]["default"]["quantile"] == 0.55
        for each in (first, other):
            await eventually(lambda each=each: estimator(each).canary is None)  # type: ignore[misc]
            assert estimator(each).parameters.default.quantile == 0.55

        async def over() -> bool:
            return [await shown(each) for each in (first, other, third)] == [None, None, None]

        await eventually(over)
        history = (await state(first))["history"]
        assert [(entry["by"], entry["canary"] and entry["canary"]["share"]) for entry in history] == [
            ("bob", None), ("ann", 10), ("", None),
        ]  # fmt: skip


async def test_a_canary_is_rolled_back_by_an_operator_and_its_promotion_undone(tmp_path: Path) -> None:
    """Without a Redis too: what counted before counts again, and the trail leads back over canaries."""
    async with traced(tmp_path) as client:
        assert (await called(client, "canary", BEGIN)).status_code == 200
        back = await called(client, "rollback", {"by": "bob", "base": 1})
        assert (back.status_code, back.json()["number"], back.json()["canary"]) == (200, 2, None)
        assert back.json()["history"][0]["settings"] is True
        await eventually(lambda: estimator(client).canary is None)
        again = await called(client, "canary", BEGIN | {"base": 2, "after": 100})
        assert again.status_code == 200, again.text
        await has_seen(client, GOOD, GOOD)

        async def promoted() -> bool:
            return (await called(client, "promote", {"by": "bob", "base": 3})).status_code == 200

        await eventually(promoted)
        await eventually(lambda: estimator(client).parameters.default.quantile == 0.55)
        undone = await called(client, "apply", {"by": "bob", "base": 4, "restore": 2})
        assert undone.status_code == 200
        await eventually(lambda: estimator(client).parameters.default.quantile == 0.5)


@pytest.mark.parametrize("promote", [False, True])
async def test_how_a_canary_ended_by_itself_is_in_the_audit_trail(tmp_path: Path, promote: bool) -> None:
    """The audit trail shows by whom, when and why, also to viewers; no operator can act on the ended canary."""
    async with traced(tmp_path) as client:
        begun = await called(client, "canary", BEGIN | {"after": 100, "hold_ms": 0, "promote": promote})
        assert begun.status_code == 200, begun.text
        await has_seen(client, GOOD if promote else BAD, GOOD)

        async def ended() -> bool:
            return bool((await state(client))["number"] == 2)

        await eventually(ended)
        newest = (await state(client))["history"][0]
        assert newest["by"].startswith("quaestor (")
        expected = "promoted: nothing is worse than predicted" if promote else "rolled back: hits: 0.0500 ("
        assert newest["why"].startswith(expected)
        for end in ENDS:
            late = await called(client, end, {"by": "bob", "base": 1})
            assert late.status_code == 409
            assert (
                "has applied other parameters meanwhile (number 2, decided on 1; yours on 1)" in late.json()["detail"]
            )

        async def over() -> bool:
            return bool(await shown(client) is None)

        await eventually(over)


async def test_a_canary_that_breaks_a_guard_ends_at_once_though_the_rest_is_as_bad(tmp_path: Path) -> None:
    """Everybody sees the guard, and the reason in the audit trail; one that the trace predicts to break it is not begun."""
    async with traced(tmp_path) as client:
        hopeless = await called(client, "canary", BEGIN | {"hits_at_least": 1})
        assert (hopeless.status_code, "below the guard hits_at_least of 1" in hopeless.json()["detail"]) == (400, True)
        begun = await called(client, "canary", BEGIN | {"hits_at_least": 0.2, "stale_at_most": 0.9})
        assert begun.status_code == 200, begun.text
        assert begun.json()["canary"]["guards"] == {"stale_at_most": 0.9, "hits_at_least": 0.2}
        await has_seen(client, BAD, BAD)

        async def ended() -> bool:
            return bool((await state(client))["number"] == 2)

        await eventually(ended)
        why = (await state(client))["history"][0]["why"]
        assert why.startswith("rolled back: guard hits at least 0.2: broken, 0.0500 ("), why


async def test_the_slower_of_two_operators_of_a_canary_is_refused(tmp_path: Path) -> None:
    """The slower of two operators is refused when both begin a canary or end one differently; none of the slower one's
    changes happens.
    """
    async with traced(tmp_path) as client:
        for by, status in (("ann", 200), ("bob", 409)):
            got = await called(client, "canary", BEGIN | {"by": by})
            assert got.status_code == status
        assert got.json()["detail"].startswith("ann has applied other parameters meanwhile (number 1")
        assert (await called(client, "rollback", {"by": "ann", "base": 1})).status_code == 200
        for end in ENDS:
            got = await called(client, end, {"by": "bob", "base": 1})
            assert (got.status_code, got.json()["detail"][:30]) == (409, "ann has applied other paramete")
        assert (await state(client))["number"] == 2
        for end in ENDS:
            got = await called(client, end, {"by": "bob", "base": 2})
            assert (got.status_code, "there is no canary that could be" in got.json()["detail"]) == (400, True)


@pytest.mark.parametrize("who", ["viewer", "read-only"])
async def test_a_reader_sees_a_canary_and_cannot_act(tmp_path: Path, who: str) -> None:
    async with traced(tmp_path, read_only=who == "read-only") as client:
        headers = VIEWER if who == "viewer" else OPERATOR
        begun = 0
        if who == "viewer":
            begun = (await called(client, "canary", BEGIN)).json()["number"]
        for path, body in (("canary", BEGIN), *((end, {"by": "eve", "base": begun}) for end in ENDS)):
            got = await called(client, path, body, headers)
            assert (got.status_code, "read-only" in got.json()["detail"]) == (403, True)
        assert (await state(client))["number"] == begun
        if begun:
            assert (await client.get(f"{HERE}/data", headers=headers)).json()["canary"]["number"] == begun


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("canary", BEGIN | {"share": 51}, "share of a canary must be a whole number in 1..50, not 51"),
        ("canary", BEGIN | {"share": 0}, "share of a canary must be"),
        ("canary", BEGIN | {"share": 10.5}, "share of a canary must be"),
        ("canary", BEGIN | {"share": "10"}, "share of a canary must be"),
        ("canary", BEGIN | {"share": True}, "share of a canary must be"),
        ("canary", BEGIN | {"share": None}, "share of a canary must be"),
        ("canary", BEGIN | {"after": 7}, "after of a canary must be"),
        ("canary", BEGIN | {"hold_ms": -1}, "hold_ms of a canary must be"),
        ("canary", BEGIN | {"promote": 1}, "promote must be true or false"),
        ("canary", BEGIN | {"stale_at_most": 2}, "stale_at_most of a canary must be a share in 0..1, not 2"),
        ("canary", BEGIN | {"hits_at_least": "0.5"}, "hits_at_least of a canary must be a share in 0..1, not 0.5"),
        ("canary", BEGIN | {"delta_ms": 1_000}, "the body is"),
        ("canary", BEGIN | {"predicted": {"hits": [0, 0, 0, 0]}}, "the body is"),
        ("canary", BEGIN | {"trace": "/etc/passwd"}, "the body is"),
        ("canary", {"by": "ann", "base": 0, "parameters": CHOSEN}, "the body is"),
        ("canary", BEGIN | {"parameters": {"default": {"quantile": 7}}}, "quantile must lie in"),
        ("canary", BEGIN | {"by": " "}, "say who you are"),
        ("canary", BEGIN | {"base": "0"}, "base is the number"),
        ("canary", [], "the body is"),
        ("promote", {"by": "ann"}, "the body is"),
        ("promote", {"by": "ann", "base": 0, "number": 1}, "the body is"),
        ("promote", {"by": "", "base": 0}, "say who you are"),
        ("rollback", {"by": "ann", "base": -1}, "base is the number"),
        ("rollback", ["ann"], "the body is"),
    ],
)  # fmt: skip
async def test_a_canary_that_cannot_be_is_refused_in_one_sentence(path: str, body: Any, message: str) -> None:
    """Before anything is predicted; a client names neither files nor predictions."""
    async with watched() as client:
        got = await called(client, path, body)
        assert (got.status_code, message in got.json()["detail"]) == (400, True), got.text
        assert (await state(client))["number"] == 0


async def test_without_enough_in_a_trace_there_is_no_canary(tmp_path: Path) -> None:
    """The refusal names the missing part of the trace, and no canary begins."""
    async with watched() as client:
        got = await called(client, "canary", BEGIN)
        assert (got.status_code, "set trace_file" in got.json()["detail"]) == (400, True)
    async with traced(tmp_path, short=True) as client:
        got = await called(client, "canary", BEGIN)
        assert (got.status_code, "record for longer" in got.json()["detail"]) == (400, True)
        (tmp_path / "trace-4711").write_text("\x00\xff" * 5_000)
        got = await called(client, "canary", BEGIN)
        assert (got.status_code, "is no trace" in got.json()["detail"]) == (400, True)
        assert (await state(client))["number"] == 0


async def test_a_client_that_leaves_before_the_prediction_has_begun_nothing(tmp_path: Path) -> None:
    """A client that leaves before the prediction begins no canary, and the next client can begin one."""
    async with traced(tmp_path) as client:
        app = client._transport.app  # type: ignore[attr-defined]
        fields = (b"authorization", OPERATOR["authorization"].encode()), (b"content-type", b"application/json")
        status, _ = await answered(app, scope_of(f"{HERE}/canary", *fields, method="POST"), json.dumps(BEGIN).encode())
        assert status == 400
        assert (await state(client))["number"] == 0
        assert (await called(client, "canary", BEGIN)).status_code == 200


async def test_unreadable_parts_of_a_canary_are_left_out(redis_url: str, prefix: str, tmp_path: Path) -> None:
    """The page goes on; nothing is promoted on a guess, and it can still be rolled back."""
    settings = {"redis_url": redis_url, "deployment": prefix}
    async with (
        Redis.from_url(redis_url) as redis,
        traced(tmp_path, settings=settings) as client,
    ):
        await redis.set(f"quaestor:{{{prefix}:ttl}}:canary:1", "no hash")
        assert (await called(client, "canary", BEGIN)).status_code == 200

        async def goes_on() -> bool:
            answer = (await client.get(f"{HERE}/data", headers=OPERATOR)).json()
            return (answer["published"], answer["canary"]) == (1, None)

        await eventually(goes_on)
        got = await called(client, "promote", {"by": "ann", "base": 1})
        assert (got.status_code, "could not be exchanged" in got.json()["detail"]) == (503, True)
        assert (await called(client, "rollback", {"by": "ann", "base": 1})).json()["number"] == 2


async def test_an_estimator_of_the_applications_own_has_no_canary() -> None:
    quaestor = Quaestor(grid=False, explicit=True, estimator=StaticTtl(1_000))
    cache = QuaestorMiddleware(plain, quaestor=quaestor, dashboard=Dashboard(token=AdminToken(TOKEN)))
    fields = (b"authorization", OPERATOR["authorization"].encode()), (b"content-type", b"application/json")
    async with lifespan(cache):
        for path, body in (("canary", BEGIN), ("promote", {"by": "ann", "base": 0})):
            scope = scope_of(f"{HERE}/{path}", *fields, method="POST")
            answer = await exchanged(cache, scope, [json.dumps(body).encode()], stays=True)
            assert (answer.status, b"estimator of its own" in answer.body) == (400, True)
