"""Child processes of the demo, ready to start: app workers, live page, officers, replay."""

from __future__ import annotations

import sys
from pathlib import Path

from quaestor.demo import replay
from quaestor.demo.officers.settings import OfficersSettings
from quaestor.testing.programs import python_server, uvicorn_arguments
from quaestor.testing.servers import HOST, Server


def app_server(folder: Path, *, port: int, workers: int, environment: dict[str, str]) -> Server:
    """Server with the app's workers."""
    return python_server(
        folder,
        "app",
        uvicorn_arguments("quaestor.demo.flights_app:create_app", port, workers=workers),
        port=port,
        path="/airlines",
        environment=environment,
    )


def live_server(folder: Path, *, port: int, environment: dict[str, str]) -> Server:
    """Server of the live page."""
    return python_server(
        folder,
        "live page",
        uvicorn_arguments("quaestor.demo.live:create_app", port, workers=1),
        port=port,
        path="/totals",
        environment=environment,
    )


def officers_server(folder: Path, *, port: int, moves: bool) -> Server:
    """Server of the officers' map. moves: whether officers move and tweets come by themselves."""
    (data := folder / "data").mkdir()
    settings = OfficersSettings(folder=str(data), url=f"http://{HOST}:{port}", moves=moves)
    return python_server(
        folder,
        "officers",
        uvicorn_arguments("quaestor.demo.officers.officers_app:create_app", port, workers=1),
        port=port,
        path="/state",
        environment=settings.to_env(),
    )


def replay_process(folder: Path, *, mongo_url: str, database: str, speed: float, laps: int) -> Server:
    """Replay, started by its file name like a foreign program, not as a part of the package. -P keeps its folder off sys.path."""
    arguments = [
        sys.executable, "-P", replay.__file__, mongo_url, database, "--speed", str(speed), "--laps", str(laps)
    ]  # fmt: skip
    return Server("replay", arguments, folder, 0, "", ready=lambda: True)
