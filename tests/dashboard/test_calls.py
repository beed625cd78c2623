"""Calls of the dashboard: permissions, data shown, refusals in one sentence, changes of an application."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from quaestor import AdminToken, ConfigurationError, Dashboard, Quaestor
from quaestor.dashboard import live
from quaestor.dashboard.assets import FOLDER, Assets
from quaestor.middleware import QuaestorMiddleware
from quaestor.ports import LifetimeEstimator
from quaestor.runtime import services
from quaestor.ttl.baselines import StaticTtl
from tests.dashboard.running import HERE, OPERATOR, TOKEN, VIEWER, lifespan, plain, watched
from tests.raw_asgi import exchanged, scope_of
from tests.support import eventually

pytestmark = pytest.mark.anyio

QUANTILE = {"default": {"quantile": 0.3}}


async def test_the_page_is_for_everybody_and_what_it_shows_is_not() -> None:
    """Without a token the server shows no data, not even the names of the calls."""
    async with watched() as client:
        page = await client.get(f"{HERE}/")
        assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        calls = ("data", "parameters", "apply", "canary", "promote", "rollback", "what-if", "continuous")
        for path in (*calls, "continuous/query", "continuous/change", "nothing", "../admin/status", "assets.py"):
            for method in ("GET", "POST"):
                answer = await client.request(method, f"{HERE}/{path}", headers={"authorization": "Bearer x"})
                if path != "../admin/status":
                    assert answer.status_code in (401, 429), path
                    assert answer.headers["cache-control"] == "no-store"
        assert (await client.get(f"{HERE}/data", headers=OPERATOR)).status_code == 200
        assert (await client.get(f"{HERE}/nothing", headers=OPERATOR)).status_code == 404
        got = await client.get(f"{HERE}/apply", headers=OPERATOR)
        assert (got.status_code, got.headers["allow"]) == (405, "POST")


async def test_paths_that_are_not_the_dashboards_are_the_apps() -> None:
    async with watched() as client:
        for path in ("/", "/quaestor", "/quaestor/dashboards", "/x/quaestor/dashboard/data"):
            assert (await client.get(path)).text == path


async def test_references_are_relative_and_nothing_is_inline() -> None:
    """The page works below any prefix, stripped or not, and with a strict content policy."""
    async with watched() as client:
        first = await client.get(HERE)
        assert (first.status_code, first.headers["location"]) == (308, "dashboard/")
        page = await client.get(f"{HERE}/")
        policy = page.headers["content-security-policy"]
        assert policy.startswith("default-src 'self'; ")
        assert "unsafe" not in policy
    for path in FOLDER.glob("*"):
        if path.suffix in (".html", ".js", ".css"):
            text = path.read_text()
            assert "http://" not in text, path
            assert "https://" not in text, path
            assert 'src="/' not in text, path
            assert 'href="/' not in text, path
            assert "innerHTML" not in text, path
    for path in FOLDER.glob("*.html"):
        assert "<style" not in path.read_text(), path
    html = (FOLDER / "index.html").read_text()
    assert "style=" not in html
    assert " on" not in "".join(part.partition(">")[0] for part in html.split("<"))
    assert html.count("<script") == html.count("<script src=") + html.count('<script type="module" src=')


async def test_below_a_prefix_that_the_server_knows_it_is_the_same() -> None:
    async with watched() as client:
        app = client._transport.app  # type: ignore[attr-defined]
        scope = scope_of(f"/shop{HERE}/data", (b"authorization", OPERATOR["authorization"].encode()), root_path="/shop")
        assert (await exchanged(app, scope, stays=True)).status == 200
        moved = await exchanged(app, scope_of(f"/shop{HERE}", root_path="/shop"), stays=True)
        assert moved.of(b"location") == [b"dashboard/"]


def test_the_page_is_small_and_its_library_is_the_one_that_is_locked() -> None:
    """62 kB packed at most, everything together; version and licence are there."""
    assert sum(len(file.packed) for file in Assets()._files.values()) <= 62_000
    lock = json.loads((Path(__file__).parents[2] / "clients/dashboard/package-lock.json").read_text())
    version = lock["packages"]["node_modules/uplot"]["version"]
    vendored = FOLDER / "vendored"
    assert (vendored / "VERSIONS").read_text().startswith(f"uPlot {version}, MIT")
    assert "Permission is hereby granted" in (vendored / "uPlot.LICENSE").read_text()
    assert f"(v{version})" in (vendored / "uPlot.iife.min.js").read_text()[:200]


async def test_files_are_packed_and_confirmed_by_their_tags() -> None:
    async with watched() as client:
        packed = await client.get(f"{HERE}/dashboard.js", headers={"accept-encoding": "gzip"})
        assert packed.headers["content-encoding"] == "gzip"
        unpacked = await client.get(f"{HERE}/dashboard.js", headers={"accept-encoding": "identity"})
        assert unpacked.text == packed.text == (FOLDER / "dashboard.js").read_text()
        again = await client.get(f"{HERE}/dashboard.js", headers={"if-none-match": packed.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert (await client.head(f"{HERE}/")).content == b""


async def test_one_snapshot_a_second_is_made_for_all_viewers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred looks cost a hundred answers of the same bytes, not a hundred snapshots; without a look there is none."""
    made = 0
    composed = live.composed

    def counted(*arguments: Any, **named: Any) -> Any:
        nonlocal made
        made += 1
        return composed(*arguments, **named)

    monkeypatch.setattr(live, "composed", counted)
    monkeypatch.setattr(live, "EVERY_S", 3_600.0)
    async with watched() as client:
        await client.get("/a")
        assert made == 0
        bodies = {(await client.get(f"{HERE}/data", headers=VIEWER)).content for _ in range(100)}
        assert (len(bodies), made) == (1, 1)


async def test_the_reported_figures_equal_the_requests_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """The figures equal the requests made; updates follow each second, compressed if the client accepts it."""
    monkeypatch.setattr(live, "EVERY_S", 0.05)
    async with watched() as client:
        for _ in range(5):
            await client.get("/a")

        async def counted() -> bool:
            answer = (await client.get(f"{HERE}/data", headers=VIEWER)).json()
            return bool(answer["sums"]["requests"] == {"hit": 4, "miss": 1})

        await eventually(counted)

        async def goes_on() -> bool:
            return len((await client.get(f"{HERE}/data", headers=VIEWER)).json()["points"]) > 20

        await eventually(goes_on)
        latest = await client.get(f"{HERE}/data?latest", headers=VIEWER | {"accept-encoding": "gzip"})
        assert latest.headers["content-encoding"] == "gzip"
        assert len(latest.json()["points"]) == 15
        assert len(gzip.compress(latest.content)) < 4_000


async def test_traffic_is_shown_by_route_with_the_reasons_of_misses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Traffic is shown by route and by window of time; in a process that has just begun, each window covers its whole
    life.
    """
    monkeypatch.setattr(live, "EVERY_S", 0.05)
    async with watched() as client:
        for _ in range(5):
            await client.get("/a")
        await client.get("/b", headers={"authorization": "Bearer x"})

        why = {"absent": 1, "credentials": 1, "no-reads": 1}

        async def seen() -> bool:
            answer = (await client.get(f"{HERE}/data", headers=VIEWER)).json()
            routes = {row["route"]: (row["hits"], row["misses"], row["passed"], row["why"]) for row in answer["routes"]}
            windows = [answer["windows"][span]["requests"] for span in ("60", "300", "3600")]
            return bool(
                routes == {"GET /a": (4, 1, 0, {"absent": 1}), "GET /b": (0, 1, 0, why)}
                and windows == [{"hit": 4, "miss": 2}] * 3
                and answer["cdn"] is False
            )

        await eventually(seen)


async def test_parameters_are_applied_and_undone_and_the_history_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The history shows by whom, when and what; the app uses the new numbers, and in the end its settings' numbers
    again.
    """
    monkeypatch.setattr(services, "_TUNED_EVERY_S", 0.02)
    async with watched(settings={"ttl_quantile": 0.4}) as client:
        state = (await client.get(f"{HERE}/parameters", headers=OPERATOR)).json()
        assert (state["may_apply"], state["number"], state["parameters"]["default"]["quantile"]) == (True, 0, 0.4)
        wanted = {"by": "ann", "base": 0, "parameters": QUANTILE}
        applied = (await client.post(f"{HERE}/apply", headers=OPERATOR, json=wanted)).json()
        assert (applied["number"], applied["parameters"]["default"]["quantile"]) == (1, 0.3)
        cache = client._transport.app  # type: ignore[attr-defined]
        await eventually(lambda: cache.engine.parts.estimator.parameters.default.quantile == 0.3)
        undone = await client.post(f"{HERE}/apply", headers=OPERATOR, json={"by": "bob", "base": 1, "restore": 0})
        history = undone.json()["history"]
        assert [(publication["number"], publication["by"], publication["settings"]) for publication in history] == [
            (2, "bob", True), (1, "ann", False), (0, "", True),
        ]  # fmt: skip
        await eventually(lambda: cache.engine.parts.estimator.parameters.default.quantile == 0.4)


async def test_the_slower_of_two_operators_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slower operator receives the name of the faster one; none of the slower one's changes was applied."""
    async with watched() as client:
        for by, status in (("ann", 200), ("bob", 409)):
            wanted = {"by": by, "base": 0, "parameters": QUANTILE}
            got = await client.post(f"{HERE}/apply", headers=OPERATOR, json=wanted)
            assert got.status_code == status
        assert got.json()["detail"].startswith("ann has applied other parameters meanwhile (number 1")
        assert (await client.get(f"{HERE}/parameters", headers=OPERATOR)).json()["number"] == 1


@pytest.mark.parametrize("who", ["viewer", "read-only"])
async def test_a_reader_applies_nothing(who: str) -> None:
    headers = VIEWER if who == "viewer" else OPERATOR
    async with watched(read_only=who == "read-only") as client:
        assert (await client.get(f"{HERE}/parameters", headers=headers)).json()["may_apply"] is False
        wanted = {"by": "ann", "base": 0, "parameters": QUANTILE}
        got = await client.post(f"{HERE}/apply", headers=headers, json=wanted)
        assert (got.status_code, "read-only" in got.json()["detail"]) == (403, True)
        assert (await client.get(f"{HERE}/parameters", headers=headers)).json()["number"] == 0


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"by": "ann", "base": 0, "parameters": {"default": {"quantile": 7}}}, "quantile must lie in"),
        ({"by": "ann", "base": 0, "parameters": {"default": {"ttl_min_ms": 5_000, "ttl_max_ms": 1_000}}}, "is below ttl_min_ms"),
        ({"by": "ann", "base": 0, "parameters": {"default": {"nonsense": 1}}}, "unknown parameters nonsense"),
        ({"by": "ann", "base": 0, "parameters": {"kinds": {str(i): {} for i in range(65)}}}, "at most 64 collections"),
        ({"by": "ann", "base": 0, "parameters": None}, "must be an object"),
        ({"by": "ann", "base": 0, "parameters": {"default": {"estimator": "<img src=x>"}}}, "is none of"),
        ({"by": "", "base": 0, "parameters": QUANTILE}, "say who you are"),
        ({"by": "a\nb", "base": 0, "parameters": QUANTILE}, "say who you are"),
        ({"by": "x" * 61, "base": 0, "parameters": QUANTILE}, "say who you are"),
        ({"by": "ann", "base": -1, "parameters": QUANTILE}, "base is the number"),
        ({"by": "ann", "base": True, "parameters": QUANTILE}, "base is the number"),
        ({"by": "ann", "base": 0, "restore": 9}, "no entry 9"),
        ({"by": "ann", "base": 0, "restore": "0"}, "restore is the number"),
        ({"by": "ann", "base": 0}, "the body is"),
        ([], "the body is"),
        ({"by": "ann", "base": 0, "parameters": QUANTILE, "restore": 0}, "the body is"),
    ],
)  # fmt: skip
async def test_impossible_parameters_are_refused_in_one_sentence_and_change_nothing(body: Any, message: str) -> None:
    async with watched() as client:
        got = await client.post(f"{HERE}/apply", headers=OPERATOR, json=body)
        assert got.status_code == 400
        assert message in got.json()["detail"]
        assert (await client.get(f"{HERE}/parameters", headers=OPERATOR)).json()["number"] == 0


@pytest.mark.parametrize("path", ["apply", "canary", "promote", "rollback", "what-if"])
async def test_pages_of_others_and_broken_bodies_get_nowhere(path: str) -> None:
    """A form can send no token and no JSON; what is too long or no JSON is refused."""
    async with watched() as client:
        form = await client.post(f"{HERE}/{path}", headers=OPERATOR | {"content-type": "text/plain"}, content="{}")
        assert form.status_code == 415
        broken = {"content-type": "application/json"} | OPERATOR
        assert (await client.post(f"{HERE}/{path}", headers=broken, content="{")).status_code == 400
        assert (await client.post(f"{HERE}/{path}", headers=broken, content="[" * 100_000)).status_code == 400
        assert (await client.post(f"{HERE}/{path}", headers=broken, content=" " * 300_000)).status_code == 413
        preflight = await client.options(f"{HERE}/{path}", headers={"origin": "https://evil.example"})
        assert not any(name.startswith("access-control") for name in preflight.headers)


async def test_an_estimator_of_the_applications_own_is_left_alone() -> None:
    """Live data are there; there is nothing to tune."""
    own: LifetimeEstimator = StaticTtl(1_000)
    quaestor = Quaestor(grid=False, explicit=True, estimator=own)
    cache = QuaestorMiddleware(plain, quaestor=quaestor, dashboard=Dashboard(token=AdminToken(TOKEN)))
    bearer = (b"authorization", OPERATOR["authorization"].encode())
    async with lifespan(cache):
        answer = json.loads((await exchanged(cache, scope_of(f"{HERE}/parameters", bearer), stays=True)).body)
        assert answer["may_apply"] is False
        assert "parameters" not in answer
        assert (await exchanged(cache, scope_of(f"{HERE}/data", bearer), stays=True)).status == 200


@pytest.mark.parametrize("path", ["", "dashboard", "/a/", "/a?b", "/a b", "/ä"])
def test_a_path_that_is_none_is_refused(path: str) -> None:
    with pytest.raises(ConfigurationError, match="is no path"):
        Dashboard(token=AdminToken(TOKEN), path=path)
