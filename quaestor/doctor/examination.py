"""Examination: all checks, from the machine to the routes. Nothing is changed; handlers of GET routes run if an app is named."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass
from typing import Any

import anyio.to_thread

from quaestor.app import Quaestor
from quaestor.capture.clients import watch_client
from quaestor.capture.listener import Capture
from quaestor.doctor import (
    background,
    build_kind,
    cdn_check,
    channels,
    database,
    machine,
    middleware_order,
    routes,
    shared_redis,
)
from quaestor.doctor.diagnosis import Diagnosis, mend, ok, warn
from quaestor.doctor.hosted_app import layers, load_app, middleware_of, started
from quaestor.errors import ConfigurationError
from quaestor.settings import Settings

FROM_ENV = "quaestor = Quaestor.from_env()"
_NAME_IT = "export MONGO_URL='mongodb://HOST:27017/?replicaSet=rs0'"

_WITHOUT_REDIS = (
    "none: each app process caches for itself and follows MongoDB by itself, also with several workers. The answer to a "
    "request that wrote waits until its process serves nothing older, for {bound_ms} ms at most (read_your_writes_ms); "
    "another process may serve the older answer for some milliseconds. {shared}"
)
_SHARED = "With REDIS_URL and Quaestor.from_env() the processes share entries, sketch and purges"
_REDIS_UNREAD = (
    "REDIS_URL is set, and the app does not read it, because it calls Quaestor(). With Quaestor.from_env() the processes share "
    "entries, sketch and purges. To keep them apart, pass redis_url=None"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """Outcome of an examination.

    settings: settings in use: the app's, or else the environment's.
    ignored: REDIS_URL and variables QUAESTOR_* that the app does not read.
    """

    settings: Settings
    diagnoses: Sequence[Diagnosis]
    ignored: Sequence[str] = ()


async def examine(settings: Settings, *, app: str | None = None, examples: Sequence[str] = ()) -> Examined:
    """Examine the services that these settings name, and the app, with its own settings, if one is named.

    app: `module:app`.
    examples: paths of its routes with parameters.

    Raises ConfigurationError if the app cannot be loaded.
    """
    hosted = None if app is None else load_app(app)
    async with AsyncExitStack() as life:
        if hosted is None:
            return Examined(settings=settings, diagnoses=await _surroundings(settings, None, ()))
        try:
            await life.enter_async_context(started(hosted))
            middleware = middleware_of(hosted)
        except ConfigurationError as error:
            diagnoses = await _surroundings(settings, None, ())
            return Examined(settings=settings, diagnoses=[*diagnoses, mend("app", str(error))])
        engine = middleware.engine
        capture = engine.capture if isinstance(engine, Quaestor) else None
        ignored = engine.ignored_variables if isinstance(engine, Quaestor) else ()
        diagnoses = await _surroundings(engine.settings, capture, ignored)
        diagnoses += middleware_order.examined(layers(middleware)[1])
        if isinstance(engine, Quaestor):
            diagnoses += await cdn_check.diagnosed(engine)
        diagnoses += await routes.examined(middleware, hosted, examples)
        if isinstance(engine, Quaestor):  # after the routes, because their background work has run by then
            diagnoses += background.examined(engine.services())
        return Examined(settings=engine.settings, diagnoses=diagnoses, ignored=ignored)


async def _surroundings(settings: Settings, capture: Capture | None, ignored: Sequence[str]) -> list[Diagnosis]:
    return await anyio.to_thread.run_sync(_surroundings_of, settings, capture, ignored)


def _surroundings_of(settings: Settings, capture: Capture | None, ignored: Sequence[str]) -> list[Diagnosis]:
    diagnoses = machine.examined(settings) + build_kind.examined() + channels.examined(settings)
    diagnoses += (
        _database(settings, capture) if settings.grid.enabled else [ok("mongod", "none is watched (grid=False)")]
    )
    if settings.redis_url is None:
        return [*diagnoses, _without_redis(settings, unread="REDIS_URL" in ignored)]
    return diagnoses + shared_redis.examined(settings.redis_url, settings)


def _without_redis(settings: Settings, *, unread: bool) -> Diagnosis:
    shared = _REDIS_UNREAD if unread else _SHARED
    sentence = _WITHOUT_REDIS.format(bound_ms=settings.grid.read_your_writes_ms, shared=shared)
    return warn("redis", sentence, FROM_ENV) if unread else ok("redis", sentence)


def _database(settings: Settings, capture: Capture | None) -> list[Diagnosis]:
    hosts: Any = settings.mongo_url
    if hosts is None and capture is not None:
        capture.clients.look()
        hosts = (capture.clients.first or {}).get("host")
    if hosts is None and capture is None:
        return [mend("mongod", "no MongoDB is named: pass --mongo-url or --app, or set MONGO_URL", _NAME_IT)]
    try:
        client = watch_client(capture or Capture(), settings)
    except ConfigurationError as error:
        return [mend("mongod", str(error), _NAME_IT)]
    with closing(client):
        return database.examined(client, settings, hosts=hosts)
