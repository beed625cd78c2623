"""Stack of the demo: all of its parts, started and stopped.

The parts are mongod, Valkey, the Spark grid, the app's workers, Varnish, the live page, the officers' map and the replay. Each
is a process of its own on a free loopback port, with its data in one temporary folder. All of them are stopped again in any case.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import pymongo
import redis

from quaestor.demo import children, loader
from quaestor.demo.flights_app import AppSettings
from quaestor.demo.live import LiveSettings
from quaestor.demo.progress import Progress
from quaestor.errors import ConfigurationError
from quaestor.event_layer.connecting import event_layer
from quaestor.invalidation.grid.spark import cell_pids
from quaestor.invalidation.grid.spark.home import require_java
from quaestor.model import Cell
from quaestor.redis import clients
from quaestor.testing import programs, reaper, servers
from quaestor.testing.servers import Server


@dataclass(frozen=True, slots=True, kw_only=True)
class StackOptions:
    """Options of the stack.

    day: replayed day of 2013.
    around_days: days before and after it whose flights are loaded; None loads the whole year.

    port, live_port: ports of the front (Varnish, or the app without it) and of the live page; 0 takes a free one.
    spark: whether the grid runs on Spark. Without it the app runs embedded: one worker with the matching node inside, no Redis.
    requests_per_s: rate of the gentle traffic; 0 makes none, and no officer moves by himself.
    settings: QUAESTOR_... variables for the app.
    """

    day: str = "2013-07-04"
    around_days: int | None = None
    port: int = 0
    live_port: int = 0
    spark: bool = True
    varnish: bool = True
    workers: int = 2
    requests_per_s: float = 40.0
    settings: Mapping[str, str] = field(default_factory=dict)


class Stack:
    """Running stack of the demo, as a context manager: everything runs inside the block.

    Raises ConfigurationError, before anything is started, if a part is missing or a port is in use. Raises DependencyError if a
    part does not start. In both cases nothing is left running.
    """

    def __init__(self, options: StackOptions, progress: Progress) -> None:
        self._options = options
        self._progress = progress
        self._exit = ExitStack()
        self._reported: set[str] = set()
        self.servers: dict[str, Server] = {}
        name = uuid.uuid4().hex[:8]
        self.deployment = f"demo-{name}"
        self.database = f"quaestor_demo_{name}"
        self.mongo_url = os.environ.get("MONGO_URL", "")
        self.redis_url = os.environ.get("REDIS_URL", "")
        self.workers = options.workers if options.spark else 1
        self.varnish = options.varnish and servers.varnish_binary() is not None

    def __enter__(self) -> Stack:
        try:
            self._check()
            folder = Path(tempfile.mkdtemp(prefix="quaestor-demo-"))
            folder.chmod(0o711)  # for varnishd, which changes to a user of its own when root starts it
            self._exit.callback(shutil.rmtree, folder, ignore_errors=True)
            self._start(folder)
        except BaseException:
            self._exit.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exit.close()

    # Where things are

    @property
    def app_url(self) -> str:
        """URL of the application."""
        return self.servers["app"].url

    @property
    def varnish_url(self) -> str | None:
        """URL of Varnish; None without it."""
        return self.servers["varnish"].url if self.varnish else None

    @property
    def front_url(self) -> str:
        """URL that users visit."""
        return self.varnish_url or self.app_url

    @property
    def live_url(self) -> str:
        """URL of the live page."""
        return self.servers["live page"].url

    @property
    def officers_url(self) -> str:
        """URL of the officers' map."""
        return self.servers["officers"].url

    def ended(self) -> list[Server]:
        """Parts that ended by themselves since the last call."""
        ended = [server for server in self.servers.values() if server.died() and server.name not in self._reported]
        self._reported.update(server.name for server in ended)
        return ended

    def matching_node_pids(self) -> dict[Cell, int]:
        """Process of each cell of the grid; empty if the matching node runs inside the app."""
        if not self._options.spark:
            return {}
        with closing(event_layer(self.redis_url, self.deployment)) as layer:
            return cell_pids(layer, self.deployment)

    # How they get there

    def _check(self) -> None:
        options = self._options
        loader.check_day(options.day)
        for port in (options.port, options.live_port):
            if port:
                servers.require_port(port)
        if self.mongo_url:
            servers.require_replica_set(self.mongo_url)
        else:
            servers.mongod_binary()
        if options.spark:
            try:
                require_java()
            except ConfigurationError as error:
                raise ConfigurationError(f"{error}; or go on with --without-spark") from error
            if self.redis_url:
                servers.require_redis(self.redis_url)
            else:
                servers.redis_binary()

    def _start(self, folder: Path) -> None:
        options = self._options
        if not self.mongo_url:
            self.mongo_url = self._run(servers.mongod_server(_inside(folder, "mongod"))).url
        self._exit.callback(self._drop_database)
        self._load()
        if options.spark:
            if not self.redis_url:
                self.redis_url = self._run(servers.redis_server(_inside(folder, "valkey"))).url
            self._exit.callback(self._forget_deployment)
            grid = programs.grid_server(
                _inside(folder, "grid"),
                deployment=self.deployment,
                redis_url=self.redis_url,
                mongo_url=self.mongo_url,
                settings=options.settings,
            )
            self._run(grid, note="2 x 2 cells and ingest, in two executors", timeout_s=120)
        self._start_front(folder)

    def _start_front(self, folder: Path) -> None:
        """Start app, Varnish and live page. App and Varnish know each other's address, so the ports are chosen first."""
        options = self._options
        app_port = servers.free_port() if self.varnish or not options.port else options.port
        varnish_port = (options.port or servers.free_port()) if self.varnish else None
        live_port = options.live_port or servers.free_port()
        app_settings = AppSettings(
            mongo_url=self.mongo_url,
            database=self.database,
            varnish_url=f"http://{servers.HOST}:{varnish_port}" if varnish_port else None,
            live_url=f"http://{servers.HOST}:{live_port}",
        )
        environment = app_settings.to_env() | {"MONGO_URL": self.mongo_url, "QUAESTOR_DEPLOYMENT": self.deployment}
        environment["QUAESTOR_TRUST_NEW_SKETCH"] = "true"  # the demo's own servers: no client keeps an earlier copy
        if options.spark:
            environment["REDIS_URL"] = self.redis_url
        environment |= options.settings
        self._run(
            children.app_server(_inside(folder, "app"), port=app_port, workers=self.workers, environment=environment),
            note=f"{self.workers} uvicorn workers" if options.spark else "1 uvicorn worker, the matching node inside",
        )
        varnish_folder = None
        if varnish_port:
            varnish = programs.varnish_before(_inside(folder, "varnish"), app_port=app_port, port=varnish_port)
            varnish_folder = str(varnish.folder / "work")
            self._run(varnish)
        elif options.varnish:
            self._progress.say(
                "- varnish                not installed (apt-get install varnish varnish-modules): going on without"
            )
        live = LiveSettings(
            mongo_url=self.mongo_url,
            database=self.database,
            day=options.day,
            app_url=self.app_url,
            front_url=self.front_url,
            varnish_folder=varnish_folder,
            requests_per_s=options.requests_per_s,
        )
        self._run(children.live_server(_inside(folder, "live"), port=live_port, environment=live.to_env()))
        officers = children.officers_server(
            _inside(folder, "officers"), port=servers.free_port(), moves=options.requests_per_s > 0
        )
        self._run(officers)

    def start_replay(self, *, speed: float, laps: int) -> None:
        """Begin to replay the day."""
        replay = children.replay_process(
            self.servers["app"].folder.parent, mongo_url=self.mongo_url, database=self.database, speed=speed, laps=laps
        )
        self._run(replay, note=f"{self._options.day} at {speed:g} times its speed")

    def _run(self, server: Server, *, note: str = "", timeout_s: float = 60) -> Server:
        with self._progress.step(server.name) as step:
            self.servers[server.name] = server
            self._exit.callback(reaper.stop_tree, server)
            server.launch()
            server.wait_ready(timeout_s)
            step.note(note or server.url)
        return server

    def _load(self) -> None:
        with (
            self._progress.step("flights") as step,
            pymongo.MongoClient[dict[str, Any]](self.mongo_url, tz_aware=True) as client,
        ):
            loaded = loader.load(
                client[self.database],
                day=self._options.day,
                around_days=self._options.around_days,
                progress=lambda flights: step.note(f"{flights:,} loaded"),
            )
            step.note(f"{loaded:,} flights, with airports, airlines, planes and weather")

    def _drop_database(self) -> None:
        """Drop the database of a mongod that the demo did not start. The demo's own mongod is deleted with its folder."""
        if "mongod" not in self.servers:
            with suppress(pymongo.errors.PyMongoError), pymongo.MongoClient[dict[str, Any]](self.mongo_url) as client:
                client.drop_database(self.database)

    def _forget_deployment(self) -> None:
        """Delete the deployment's keys from a Redis that the demo did not start."""
        if "valkey" not in self.servers:
            with suppress(redis.RedisError), clients.client(self.redis_url) as client:
                for key in client.scan_iter(match=f"quaestor:{{{self.deployment}[:}}]*", count=1_000):
                    client.delete(key)


def _inside(folder: Path, name: str) -> Path:
    inside = folder / name
    inside.mkdir()
    return inside
