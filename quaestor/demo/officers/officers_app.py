"""Application of the officers: datasets, feeds and a channel in a folder of its own, and the page with the map.

`uvicorn --factory quaestor.demo.officers.officers_app:create_app`. The application is also the broker of its channel.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from quaestor.channels.administration import Channels, channels_of
from quaestor.channels.datasets import Dataset
from quaestor.channels.rewriting.definition import Parameter
from quaestor.channels.running import RunningChannels
from quaestor.channels.runs.history import kept_reports
from quaestor.channels.runs.results import Results
from quaestor.channels.subscriptions import Subscriptions
from quaestor.continuous.delivery.batch import moment
from quaestor.demo.officers.city import FOLLOWERS, OFFICERS, RADIUS_M, SIZE_M, City, positions
from quaestor.demo.officers.settings import CHANNEL, OfficersSettings
from quaestor.live.results.endpoint import channel_results
from quaestor.observability.telemetry import Telemetry
from quaestor.settings.continuous import ContinuousSettings
from quaestor.tables.schema import Type
from quaestor.tasks import ended

PAGE: Final = Path(__file__).parents[1] / "static" / "officers.html"
STATEMENTS: Final = Path(__file__).parent / "officers.sql"
_EVERY_S: Final = 0.5
_SHOWN_TWEETS: Final = 60
_SHOWN_RUNS: Final = 12


def create_app() -> Starlette:
    """Application, made by `uvicorn --factory`; settings come from the environment."""
    settings = OfficersSettings.from_env(os.environ)
    own = ContinuousSettings(continuous_folder=settings.folder, webhook_networks=("127.0.0.0/8",))
    precinct = Precinct(channels_of(own), settings)
    running = RunningChannels(precinct.channels, own, Telemetry())

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await asyncio.to_thread(precinct.create)
        tasks = [asyncio.create_task(running.keep_running()), asyncio.create_task(running.posts.keep_running())]
        if settings.moves:
            tasks.append(asyncio.create_task(precinct.keep_moving()))
        yield
        await ended(tasks)

    async def page(request: Request) -> Response:
        return HTMLResponse(PAGE.read_text(encoding="utf-8"))

    async def state(request: Request) -> Response:
        return JSONResponse(await asyncio.to_thread(precinct.state))

    async def notified(request: Request) -> Response:
        """Take a notification; the page follows the results by itself."""
        await request.body()
        return Response(status_code=204)

    routes = [Route("/", page), Route("/state", state), Route("/notified", notified, methods=["POST"])]
    return Starlette(routes=[*routes, *channel_results(running.results), *running.posts.routes()], lifespan=lifespan)


class Precinct:
    """Datasets and channel of the officers, and their state for the page."""

    def __init__(self, channels: Channels, settings: OfficersSettings) -> None:
        self.channels = channels
        self._settings = settings
        self._city = City(settings.seed)
        self._subscriptions: dict[int, str] = {}

    def create(self) -> None:
        """Create datasets, feeds, broker and channel, and subscribe the followers of each officer."""
        text = STATEMENTS.read_text(encoding="utf-8").replace("RADIUS_M", str(RADIUS_M))
        self.channels.interpreter.run(text.replace("BROKER_URL", f"{self._settings.url}/notified"))
        self._dataset("Officers").upsert(positions(self._city.places))
        subscriptions = Subscriptions(self.channels.parts.catalogue, CHANNEL, [Parameter("officer", Type.BIGINT)])
        followers = [("control", (oid,)) for oid in range(1, OFFICERS + 1) for _ in range(FOLLOWERS)]
        self._subscriptions = dict(
            zip(range(1, OFFICERS + 1), subscriptions.add_all(followers)[::FOLLOWERS], strict=True)
        )

    async def keep_moving(self) -> None:
        """Move officers and publish tweets until cancelled."""
        while True:
            await asyncio.to_thread(self._move)
            await asyncio.sleep(_EVERY_S)

    def state(self) -> dict[str, Any]:
        """Return places, newest tweets, and the newest runs of the channel."""
        analyst = self.channels.parts.analyst
        officers = analyst.rows("SELECT oid, location FROM Officers ORDER BY oid").to_pylist()
        newest = f"SELECT tid, text, hateful, location FROM Tweets ORDER BY tid DESC LIMIT {_SHOWN_TWEETS}"
        snapshot = Results(self.channels.parts.catalogue, CHANNEL).table.snapshot()
        reports = kept_reports(snapshot)[-_SHOWN_RUNS:]
        return {
            "size": SIZE_M,
            "radius": RADIUS_M,
            "officers": [{**officer, "subscription": self._subscriptions[officer["oid"]]} for officer in officers],
            "tweets": analyst.rows(newest).to_pylist(),
            "groups": OFFICERS,
            "followers": FOLLOWERS,
            "rows": sum(file.rows for file in snapshot.files.values()),
            "runs": [
                {
                    "run": moment(report.run),
                    "rows": report.rows,
                    "took_ms": round(1_000 * report.took_s, 1),
                    "stages_ms": {stage: round(1_000 * took_s, 1) for stage, took_s in report.seconds.items()},
                }
                for report in reversed(reports)
            ],
        }

    def _move(self) -> None:
        self._dataset("Officers").upsert(self._city.move(part=1 / 3))
        self._dataset("Tweets").insert([tweet.record() for tweet in self._city.tweets(3)])

    def _dataset(self, name: str) -> Dataset:
        return Dataset.open(self.channels.parts.catalogue, name)
