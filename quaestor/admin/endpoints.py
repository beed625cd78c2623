"""Endpoints of the admin API, one method each: every method takes a Call and returns the answer, which is sent as JSON."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing
from dataclasses import asdict
from functools import partial
from typing import Any, Final

import anyio.to_thread
import pymongo
from pymongo.errors import PyMongoError

from quaestor.admin.channels import ChannelEndpoints
from quaestor.admin.continuous import ContinuousEndpoints
from quaestor.admin.purging import Purge, Purger
from quaestor.admin.registered_urls import MAX_URLS, RegisteredUrls, url_name
from quaestor.admin.request import Call, Refused
from quaestor.app import Quaestor
from quaestor.capture import declared
from quaestor.capture.clients import watch_client
from quaestor.cdn_ports import ReportingCdn
from quaestor.errors import (
    ConfigurationError,
    DatabaseError,
    DependencyError,
    EventLayerError,
    QueryError,
)
from quaestor.explain.text_query import TextQuery, explain_text
from quaestor.invalidation.grid.cell_stats import cell_stats
from quaestor.invalidation.grid.election import matching
from quaestor.observability.readings import readings
from quaestor.ports import LeasingLayer
from quaestor.read_path.key import Target, target
from quaestor.read_path.unsafe_invalidation import origin
from quaestor.store.memory import Resident

MAX_NAMES = 1000
"""Most tags, URLs or collections of one purge."""
MAX_NAME_CHARS = 8192
_LOOK_S: Final = 5.0
"""Time limit for the database to describe a collection."""


Endpoint = Callable[[Call], Awaitable[Mapping[str, Any]]]


class Endpoints:
    """Endpoints for one application.

    urls: None if no program looks registered URLs up: then none can be registered.
    database: database of collections whose declaration names none.
    """

    def __init__(self, quaestor: Quaestor, urls: RegisteredUrls | None, *, database: str | None) -> None:
        self._quaestor = quaestor
        self._registered_urls = urls
        self._database = database
        self._purger = Purger(quaestor)
        self._continuous = ContinuousEndpoints(quaestor)
        self._channels = ChannelEndpoints(quaestor)

    def table(self) -> Mapping[tuple[str, str], Endpoint]:
        """Table of the endpoints: the method that answers each (method, path below the API's path)."""
        return {
            ("POST", "/purge"): self.purge,
            ("GET", "/status"): self.status,
            ("POST", "/sketch"): self.sketch,
            ("GET", "/entries"): self.entries,
            ("GET", "/explain"): self.explain,
            ("POST", "/registrations"): self.register,
            ("GET", "/registrations"): self.registered,
            ("DELETE", "/registrations"): self.unregister,
            ("POST", "/statements"): self._channels.execute,
            ("GET", "/statements"): self._channels.resources,
            ("GET", "/continuous"): self._continuous.queries,
            ("POST", "/continuous"): self._continuous.change,
            ("GET", "/continuous/results"): self._continuous.results,
            ("GET", "/continuous/dead-letters"): self._continuous.dead_letters,
            ("GET", "/continuous/orders"): self._continuous.orders,
        }

    @property
    def _urls(self) -> RegisteredUrls:
        if self._registered_urls is None:
            raise Refused(404, "URLs are registered with the proxy; an application's own reads are listened to.")
        return self._registered_urls

    async def purge(self, call: Call) -> Mapping[str, Any]:
        """Purge by name, by tag, by URL or everything.

        {"tags": [...], "urls": [...], "collections": [...], "groups": [...], "all": true}: at least one of them.
        """
        call.only()
        body = _object(call.body)
        if unknown := body.keys() - {"tags", "urls", "collections", "groups", "all"}:
            raise Refused(
                400, f"unknown: {', '.join(sorted(unknown))[:200]}; known: tags, urls, collections, groups, all"
            )
        everything = body.get("all", False)
        if not isinstance(everything, bool):
            raise Refused(400, "all is true or false")
        purge = Purge(
            tags=_names(body, "tags"),
            urls=tuple(dict.fromkeys(map(url_name, _names(body, "urls")))),
            collections=_names(body, "collections"),
            groups=_groups(body),
            all=everything,
        )
        if not any((purge.tags, purge.urls, purge.collections, purge.groups, purge.all)):
            raise Refused(400, "nothing to purge: name tags, urls, collections or groups, or say all")
        await self._purger.purge(purge)
        return {"purged": purge.summary()}

    async def status(self, call: Call) -> Mapping[str, Any]:
        """State of this process and of the grid behind it."""
        call.only()
        quaestor = self._quaestor
        now_ms = quaestor.read_path.clock()
        shape = quaestor.registry.shape
        quaestor.telemetry.requests.flush()
        return {
            "serving": quaestor.read_path.serving(now_ms),
            "lagging": quaestor.registry.lagging_partitions(now_ms=now_ms),
            **await self._mode(),
            "grid": shape and {"query_partitions": shape.query_partitions, "write_partitions": shape.write_partitions},
            "watermark": quaestor.registry.watermark(),
            "deployment": quaestor.settings.deployment,
            "warnings": list(quaestor.telemetry.lasting),
            "services": [asdict(report) for report in quaestor.services()],
            "quarantined": [
                {
                    "route": quarantine.route,
                    "reason": quarantine.reason,
                    "differs": list(quarantine.differs),
                    "until_ms": quarantine.until_ms,
                }
                for quarantine in quaestor.read_path.probation.quarantines
            ],
            "doorkept": [
                {
                    "route": route.name or "paths whose routes nobody knows",
                    "used": round(route.share, 3),
                    "break_even": round(route.break_even or 0.0, 3),
                }
                for route in quaestor.read_path.admission.doorkeeper.kept
            ],
            "cdns": [
                asdict(report)
                for adapter in quaestor.parts.effects.cdn
                if isinstance(adapter, ReportingCdn)
                for report in adapter.reports()
            ],
            "images_refused": dict(quaestor.parts.pre_images.refused),
            "registration_bytes": await self._registration_bytes(),
            "registered_urls": 0 if self._registered_urls is None else await self._registered_urls.count(),
            "counts": readings(quaestor.telemetry.families.registry),
        }

    async def _mode(self) -> Mapping[str, Any]:
        """Process that runs the matching: `mode`, and for an elected process `leader`, as host:pid."""
        settings, layer = self._quaestor.settings, self._quaestor.parts.storage.layer
        if not settings.grid.enabled:
            return {"mode": "none"}
        if settings.redis_url is None or not isinstance(layer, LeasingLayer):
            return {"mode": "embedded"}
        try:
            matched = await anyio.to_thread.run_sync(matching, layer, settings.deployment)
        except EventLayerError:
            return {"mode": "unknown"}
        return {"mode": str(matched.by), "leader": matched.leader}

    async def _registration_bytes(self) -> int | None:
        """Average bytes of one registration, in all cells together that hold it. None: there is none, or no cell answers."""
        deployment = self._quaestor.settings.deployment
        try:
            cells = await anyio.to_thread.run_sync(cell_stats, self._quaestor.parts.storage.layer, deployment)
        except EventLayerError:
            return None
        registrations = sum(cell.registrations for cell in cells)
        held = sum(cell.bytes for cell in cells)
        return round(held * cells[0].shape.write_partitions / registrations) if registrations else None

    async def sketch(self, call: Call) -> Mapping[str, Any]:
        """Switch clients that keep answers off, or on again, for every process that shares the sketch.

        {"off": true}: they send every request to the network as soon as they load the sketch again, which happens within Δ.
        """
        call.only()
        body = _object(call.body)
        if body.keys() != {"off"} or not isinstance(body["off"], bool):
            raise Refused(400, 'the body is {"off": true} or {"off": false}')
        await self._quaestor.sketch.switch(off=body["off"])
        return {"off": body["off"], "by_setting": self._quaestor.settings.sketch.sketch_off}

    async def entries(self, call: Call) -> Mapping[str, Any]:
        """Cached entry of a URL: whether there is one, until when, and on which queries it depends."""
        call.only("url", "header")
        url = call.required("url")
        headers = [_header(text) for text in call.parameters.get("header", ())]
        named = _target(url)
        read_path = self._quaestor.read_path
        key = read_path.variants.key(named.key, headers)
        resident = None if key is None else await read_path.lookup.fetch(key)
        return {
            "url": url,
            "key": key,
            "cached": resident is not None,
            **({} if resident is None else self._entry(resident)),
        }

    def _entry(self, resident: Resident) -> Mapping[str, Any]:
        response = resident.response
        now_ms = self._quaestor.read_path.clock()
        return {
            "status": response.status,
            "age_s": max(0, now_ms - response.stored_at_ms) // 1000,
            "ttl_s": max(0, response.fresh_until_ms - now_ms) // 1000,
            "body_bytes": len(response.body),
            "etag": response.etag.decode("latin-1"),
            "tags": list(response.tags),
            "registrations": list(response.registrations),
            "depends_on": resident.explain or None,
        }

    async def explain(self, call: Call) -> Mapping[str, Any]:
        """Explain a query, as `quaestor explain` does with the application's own database."""
        call.only("filter", "collection", "sort", "skip", "limit", "projection")
        try:
            return await anyio.to_thread.run_sync(self._explained, call)
        except RecursionError as error:
            raise Refused(400, "the filter is nested too deep") from error

    def _explained(self, call: Call) -> Mapping[str, Any]:
        """Explanation, and whether the database described the collection. Blocking, for some seconds at most."""
        collection, settings = call.parameter("collection"), self._quaestor.settings
        explained = partial(
            explain_text,
            TextQuery(
                text=call.required("filter"),
                collection=collection or "test.collection",
                sort=call.parameter("sort"),
                skip=_number(call, "skip"),
                limit=_number(call, "limit"),
                projection=call.parameter("projection"),
            ),
            as_json=True,
            clock_window_ms=settings.lifetimes.clock_window_ms,
        )
        why = "no collection is named"
        if collection is not None:
            try:
                with closing(watch_client(self._quaestor.capture, settings)) as client, pymongo.timeout(_LOOK_S):
                    return {**json.loads(explained(client=client)), "looked_up": True}
            except (ConfigurationError, DatabaseError, PyMongoError) as error:
                why = str(error)
        explanation = json.loads(explained())
        unknown = f"explained as a plain collection without indexes of its own, because nobody could look: {why}"
        return {**explanation, "looked_up": False, "remark": "; ".join(filter(None, (explanation["remark"], unknown)))}

    async def register(self, call: Call) -> Mapping[str, Any]:
        """Register the queries behind a URL.

        {"url": ..., "queries": [...]}: from then on these queries guard the answers under this URL.
        """
        call.only()
        body = _object(call.body)
        if unknown := body.keys() - {"url", "queries"}:
            raise Refused(400, f"unknown: {', '.join(sorted(unknown))[:200]}; known: url, queries")
        name = _name(body.get("url"))
        text = json.dumps(body.get("queries"), separators=(",", ":")).encode()
        declaration = declared.parse(text, database=self._database)
        if not await self._urls.put(name, text):
            raise Refused(507, f"{MAX_URLS} URLs are registered; remove some")
        # The new queries do not guard the answers that were stored before.
        await self._purger.purge(Purge(urls=(name,)))
        reasons = [
            f"{reason.value}: {detail}" for read in declaration.reads for reason, detail in read.understood.reasons
        ]
        return {"url": name, "queries": len(declaration.reads), "tags": list(declaration.tags), "not_cached": reasons}

    async def registered(self, call: Call) -> Mapping[str, Any]:
        """Queries that are registered for a URL."""
        call.only("url")
        name = _name(call.required("url"))
        return {
            "url": name,
            "queries": [query for text in await self._urls.find((name,)) for query in json.loads(text)],
        }

    async def unregister(self, call: Call) -> Mapping[str, Any]:
        """Forget the queries that are registered for a URL."""
        call.only("url")
        name = _name(call.required("url"))
        return {"url": name, "removed": await self._urls.remove(name)}


def problem_of(error: Exception) -> tuple[int, str] | None:
    """Status and sentence for a foreseen error; None for a defect of Quaestor."""
    match error:
        case Refused():
            return error.status, error.detail
        case QueryError() | ConfigurationError():
            return 400, str(error)[:500]
        case DependencyError():
            return 503, f"a part did not answer: {error}"[:500]
        case _:
            return None


def _object(body: Any) -> Mapping[str, Any]:
    if not isinstance(body, dict):
        raise Refused(400, "the body is a JSON object")
    return body


def _names(body: Mapping[str, Any], name: str) -> tuple[str, ...]:
    given = body.get(name, [])
    if not isinstance(given, list) or len(given) > MAX_NAMES:
        raise Refused(400, f"{name} is an array of at most {MAX_NAMES} texts")
    for value in given:
        if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME_CHARS or not value.isprintable():
            raise Refused(400, f"{name} holds texts of 1 to {MAX_NAME_CHARS} printable characters")
    return tuple(dict.fromkeys(given))


def _groups(body: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    given = body.get("groups", [])
    if not isinstance(given, list) or len(given) > MAX_NAMES:
        raise Refused(400, f"groups is an array of at most {MAX_NAMES} objects")
    for group in given:
        if (
            not isinstance(group, dict)
            or group.keys() != {"origin", "name"}
            or not all(isinstance(v, str) for v in group.values())
        ):
            raise Refused(400, 'a group is {"origin": "https://shop.example", "name": "prices"}')
    return tuple((origin(url_name(group["origin"])), group["name"]) for group in given)


def _name(url: Any) -> str:
    if not isinstance(url, str) or len(url) > MAX_NAME_CHARS:
        raise Refused(400, f"url is a text of at most {MAX_NAME_CHARS} characters")
    return url_name(url)


def _target(url: str) -> Target:
    name = _name(url)
    scheme, separator, rest = name.partition("://")
    if not separator:
        raise Refused(400, "url is absolute here: entries are kept by scheme and host too")
    host, slash, tail = rest.partition("/")
    path, _, query = (slash + tail).partition("?")
    named = target(scheme, host.encode(), path.encode(), query.encode())
    if named is None:
        raise Refused(400, "this URL is never cached")
    return named


def _header(text: str) -> tuple[bytes, bytes]:
    name, colon, value = text.partition(":")
    if not colon:
        raise Refused(400, "header is name:value")
    return name.strip().lower().encode("latin-1", "replace"), value.strip().encode("latin-1", "replace")


def _number(call: Call, name: str) -> int:
    text = call.parameter(name) or "0"
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise Refused(400, f"{name} is a number from 0")
    return int(text)
