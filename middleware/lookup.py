"""The first half of an exchange: looking an answer up, waiting for somebody who is fetching it, sending it, or passing by."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod

from middleware.bypass import pass_by, pass_head_by
from middleware.headers import HeaderPolicy
from middleware.interface import App, Receive, Scope, Send
from middleware.refresh import Refreshes
from middleware.routes import Plan, Routes
from middleware.sending import send_resident
from middleware.stale_entry import StaleEntry
from quaestor.model import CachedResponse
from quaestor.read_path import shared_cache_rules
from quaestor.read_path.coalescing import Flight, Landing
from quaestor.read_path.decision import Event, State, step
from quaestor.read_path.key import Target
from quaestor.read_path.request import RequestFacts
from quaestor.read_path.reuse import Use
from quaestor.read_path.service import ReadPath
from quaestor.store.memory import Resident

FOLLOW_DEADLINE_S = 10.0
"""How long a request waits for another one's handler before it runs its own."""
_ROUNDS = 3
"""How often a request waits for others before it runs its own handler."""
_LOOKS = 8
"""How often an entry may die between being found and being sent before the request is answered without the cache."""


class Lookup(ABC):
    """What `middleware.exchange` has before its handler runs.

    credentials: the request carried some, and only answers that their origin lets be shared in spite of that are for
        it.
    """

    def __init__(
        self,
        app: App,
        read_path: ReadPath,
        outgoing: HeaderPolicy,
        *,
        scope: Scope,
        receive: Receive,
        send: Send,
        facts: RequestFacts,
        target: Target,
        plan: Plan,
        routes: Routes,
        refreshes: Refreshes,
        credentials: bool = False,
    ) -> None:
        self._app = app
        self._read_path = read_path
        self._outgoing = outgoing
        self._plan = plan
        self._routes = routes
        self._refreshes = refreshes
        self._credentials = credentials
        self._policy = plan.policy
        self._scope = scope
        self._receive = receive
        self._send = send
        self._facts = facts
        self._target = target
        self._state = State.LOOKING
        self._key = target.key
        self._flight: Flight | None = None
        self._old: StaleEntry | None = None
        self._waited = 0
        self._waited_for = "process"
        self._layer = "memory"
        self._begun_s = time.perf_counter()
        self._looks = 0
        self._reasons: tuple[str, ...] = ()
        self._detail = ""
        self._prepare()

    @abstractmethod
    def _prepare(self) -> None:
        """What the second half needs."""

    def _step(self, event: Event) -> None:
        self._state = step(self._state, event)

    def _land(self, how: Landing) -> None:
        if self._flight is not None:
            self._flight.land(how)

    async def _look(self) -> None:
        read_path = self._read_path
        key = read_path.variants.key(self._target.key, self._scope["headers"])
        if key is None:
            return await self._pass_by("vary")
        self._looks += 1
        if self._looks > _LOOKS:
            return await self._pass_by("unsettled")
        self._key = key
        now_ms = read_path.clock()
        found = read_path.resident(key, now_ms) or read_path.kept(key, now_ms)
        use = self._use(found)
        if use is Use.VALIDATE and (self._credentials or not self._may_store()):
            if found is None:
                found = await read_path.look(key)
                self._layer = "redis" if read_path.flights.leases is not None else "memory"
            use = self._use(found)
        elif use is Use.VALIDATE and not read_path.flights.uncoalesced(key, now_ms=now_ms):
            if read_path.flights.under_way(key) is not None and self._waited < _ROUNDS:
                return self._step(Event.BUSY)
            self._flight = read_path.flights.lead(key)
            begun_s = time.perf_counter()
            if found is not None or not read_path.absent(key):
                found = await read_path.look(key, self._flight, self._policy)
                use = self._use(found)
            if read_path.flights.leases is not None:
                self._layer = "redis"
            if self._flight.waited:
                self._waited += 1
                self._waited_for = "workers"
                read_path.telemetry.requests.wait_s.labels("workers").observe(time.perf_counter() - begun_s)
        if found is not None and use is not Use.VALIDATE:
            if not self._credentials or shared_cache_rules.shared(shared_cache_rules.governing(found.response.headers)):
                return await self._serve(found, use)
            return await self._pass_by("credentials")
        if self._facts.only_if_cached:
            return await self._refuse()
        if not self._may_store():
            if found is not None and self._scope["method"] == "HEAD" and shared_cache_rules.is_explicit(found.response):
                return await self._pass_head_by(found)
            return await self._pass_by("partial" if self._facts.partial else "request")
        self._old = (
            None if found is None or self._credentials else StaleEntry(found, read_path, self._policy, self._facts)
        )
        self._step(Event.ABSENT)
        return None

    def _use(self, found: Resident | None) -> Use:
        """What is found after waiting for another request's handler is as new as the client can ask for."""
        asked = {} if self._waited else self._facts.directives
        use = Use.VALIDATE if found is None else self._read_path.use(found.response, self._policy, asked)
        return Use.VALIDATE if use is Use.STALE_WHILE_REVALIDATE and not self._repeatable else use

    @property
    def _repeatable(self) -> bool:
        """What is keyed by its body cannot be asked again: the body is gone."""
        return self._scope["method"] in ("GET", "HEAD") and not self._credentials

    def _may_store(self) -> bool:
        """Whether the handler's answer to this request could become an entry."""
        facts = self._facts
        return self._scope["method"] != "HEAD" and not (facts.partial or facts.no_store or facts.only_if_cached)

    async def _wait(self) -> None:
        flight = self._read_path.flights.under_way(self._key)
        begun_s = time.perf_counter()
        landing = Landing.LEFT if flight is None else await flight.landing(deadline_s=FOLLOW_DEADLINE_S)
        self._waited += 1
        self._read_path.telemetry.requests.wait_s.labels("process").observe(time.perf_counter() - begun_s)
        match landing:
            case Landing.STORED:
                self._step(Event.LEADER_STORED)
            case Landing.LEFT:
                self._step(Event.LEADER_LEFT)
            case Landing.REFUSED:
                self._step(Event.LEADER_REFUSED)

    async def _serve(self, resident: Resident, use: Use) -> None:
        """From an entry that was live a moment ago; if it is not any more, look again."""
        telemetry = self._read_path.telemetry
        how = b"fwd=uri-miss; collapsed" if self._waited else None
        if use is not Use.FRESH:
            late_ms = self._read_path.clock() - resident.response.fresh_until_ms
            how = b"hit; ttl=%d" % (-late_ms // 1000)
        elif how is None and self._layer != "memory" and self._read_path.settings.debug_header:
            left_ms = resident.response.fresh_until_ms - self._read_path.clock()
            how = b"hit; ttl=%d" % (max(0, left_ms) // 1000)
        # First of all: neither those who wait nor this very request, if it has to look again, are to wait for its client to read.
        self._land(Landing.STORED if use is Use.FRESH else Landing.LEFT)
        if await self._send_from(resident, how, stale=use is not Use.FRESH):
            if self._waited:
                telemetry.requests.followed(self._waited_for)
            else:
                telemetry.requests.served(self._layer if use is Use.FRESH else "stale")
            self._step(Event.FOUND)
            if use is not Use.FRESH:
                telemetry.requests.stale_served.labels("accepted" if use is Use.STALE else "revalidating").inc()
            early = use is Use.FRESH and self._read_path.early.due(resident, self._read_path.clock())
            if use is Use.STALE_WHILE_REVALIDATE:
                self._refresh()
            elif early and self._repeatable:
                self._refresh(early=resident.response)

    async def _send_from(
        self, resident: Resident, how: bytes | None, *, stale: bool = False, received: bool = False
    ) -> bool:
        return await send_resident(
            self._read_path, self._outgoing, resident, self._send,
            target=self._target, facts=self._facts, policy=self._policy, head=self._scope["method"] == "HEAD", how=how,
            stale=stale, received=received, layer="the handler" if received else self._layer,
        )  # fmt: skip

    @abstractmethod
    def _refresh(self, early: CachedResponse | None = None) -> None:
        """Ask the handler again, in the background.

        early: an entry whose lifetime is not over yet.
        """

    async def _refuse(self) -> None:
        self._land(Landing.LEFT)
        self._step(Event.FORBIDDEN)
        headers = [
            (b"content-length", b"0"),
            (b"cache-control", b"no-store"),
            (b"cache-status", b"Quaestor; detail=absent"),
        ]
        await self._send({"type": "http.response.start", "status": 504, "headers": headers})
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _pass_by(self, reason: str) -> None:
        self._step(Event.PASSED_BY)
        self._land(Landing.LEFT)
        await pass_by(self._app, self._read_path, self._outgoing, self._scope, self._receive, self._send, reason=reason)

    async def _pass_head_by(self, found: Resident) -> None:
        self._step(Event.PASSED_BY)
        await pass_head_by(
            self._app,
            self._read_path,
            self._outgoing,
            self._scope,
            self._receive,
            self._send,
            found=found,
            policy=self._policy,
            credentials=self._credentials,
        )
