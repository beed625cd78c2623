"""One GET or HEAD that memory could not answer at once: a loop over `read_path.decision`'s table.

The handler runs in this very task, so its context, its exceptions and its background tasks are what they would be without
a cache. Its answer is held back until it is complete and guarded, or until it turns out that it will not be stored.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any

from middleware.headers import storable
from middleware.interface import Message, RawHeaders, Receive, Scope, Send
from middleware.lookup import Lookup
from middleware.stale_entry import Settled, StaleEntry
from quaestor.capture import Recorder, recording
from quaestor.model import CachedResponse, Uncacheable
from quaestor.observability.tracing import asked_by, asked_no_more, end, tell
from quaestor.read_path import freshness, shared_cache_rules
from quaestor.read_path.coalescing import Landing
from quaestor.read_path.decision import TERMINAL, Event, State
from quaestor.read_path.entries import Answer
from quaestor.read_path.forwarded_fields import shown
from quaestor.read_path.request import CONDITIONS, RequestFacts
from quaestor.read_path.reuse import Use
from quaestor.store.memory import Resident

HOLD_S = 1.0
"""How long an answer that arrives in pieces is held back before it is passed on as it comes, uncached."""
_TRANSIENT = frozenset({"refused", "died", "failed", "lifetime", Uncacheable.READ_FAILED.value})
"""Reasons that say nothing about the next answer under the same key."""


class Exchange(Lookup):
    """Runs once. The caller has found out that the request may be answered from a cache."""

    def _prepare(self) -> None:
        """The handler's answer, while it is held back."""
        self._recorder: Recorder | None = None
        self._since = 0
        self._asked_ms = 0
        self._status = 0
        self._headers: RawHeaders = []
        self._started = False
        self._chunks: list[bytes] = []
        self._held_bytes = 0
        self._shown = self._scope
        self._missing = "absent"
        self._handler_begun_s = 0.0
        self._tracing = self._read_path.telemetry.tracing
        self._span: Any = None
        self._handler_span: Any = None
        self._fat = False
        self._impatience: asyncio.TimerHandle | None = None
        self._release_task: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()

    async def run(self) -> None:
        headers = self._scope["headers"]
        asked = asked_by(headers)
        try:
            with self._tracing.request("quaestor.request", headers) as self._span:
                await self._decide()
                tell(
                    self._span,
                    state=self._state.value,
                    layer=self._layer,
                    waited=self._waited,
                    uncacheable=self._reasons,
                )
        finally:
            asked_no_more(asked)

    async def _decide(self) -> None:
        try:
            while self._state not in TERMINAL:
                match self._state:
                    case State.LOOKING:
                        await self._look()
                    case State.WAITING:
                        await self._wait()
                    case _:
                        await self._run_handler()
        finally:
            self._land(Landing.LEFT)

    def _refresh(self, early: CachedResponse | None = None) -> None:
        """Ask the handler again, once per key, whatever becomes of this request."""
        flights = self._read_path.flights
        if flights.under_way(self._key) is None and not flights.uncoalesced(self._key, now_ms=self._read_path.clock()):
            self._refreshes.start(self._scope, partial(self._again, early=early))

    async def _again(self, scope: Scope, receive: Receive, send: Send, *, early: CachedResponse | None) -> None:
        facts = RequestFacts(host=self._facts.host, claims=self._facts.claims, directives={"no-cache": None})
        exchange = Exchange(
            self._app, self._read_path, self._outgoing,
            scope=scope, receive=receive, send=send, facts=facts, target=self._target,
            plan=self._plan, routes=self._routes, refreshes=self._refreshes,
        )  # fmt: skip
        with self._tracing.request("quaestor.refresh", ()) as exchange._span:
            await exchange.refresh(early)

    async def refresh(self, early: CachedResponse | None = None) -> None:
        """Instead of run(): whatever is stored, ask the handler and store what it says.

        early: the entry that this is for, if its lifetime is not over yet.
        """
        read_path = self._read_path
        key = read_path.variants.key(self._target.key, self._scope["headers"])
        if key is None or read_path.flights.under_way(key) is not None:
            return None
        self._key = key
        self._missing = "refresh"
        self._flight = read_path.flights.lead(key)
        try:
            found = None
            if early is not None:
                if not await read_path.renews(self._flight, early):
                    return self._land(Landing.STORED)  # another process is at it, or was faster
            else:
                found = await read_path.look(key, self._flight)
                if found is not None and read_path.use(found.response, self._policy, {}) is Use.FRESH:
                    return self._land(Landing.STORED)  # another process was faster
            self._old = None if found is None else StaleEntry(found, read_path, self._policy, self._facts, spares=False)
            self._step(Event.ABSENT)
            await self._run_handler()
        finally:
            if self._state not in (State.SERVED, State.LOOKING):
                read_path.flights.leave_uncoalesced(key, now_ms=read_path.clock())
            self._land(Landing.LEFT)

    # Running the handler

    async def _run_handler(self) -> None:
        read_path = self._read_path
        if self._missing != "refresh":
            self._missing = self._why_missing()
        self._handler_begun_s = time.perf_counter()
        self._handler_span = self._tracing.begin("quaestor.handler", missing=self._missing)
        with (
            self._tracing.inside(self._handler_span),
            recording(clock_window_ms=read_path.settings.clock_window_ms) as self._recorder,
        ):
            self._since, self._asked_ms = read_path.watermark(), read_path.clock()
            scope = self._shown = self._handler_scope()
            try:
                await self._app(scope, self._receive_keyed, self._take)
            except BaseException as error:
                # Even if the client is spared the error: whoever logs exceptions must see it.
                if isinstance(error, Exception):
                    await self._spared(b"fwd=stale; detail=error")
                if self._state not in TERMINAL:
                    self._step(Event.RAISED)
                raise
            finally:
                end(self._handler_span)
                await self._stop_releasing()
                for name in scope.keys() - self._scope.keys():  # whoever wraps us looks there for the route
                    self._scope[name] = scope[name]
        if self._old is not None and self._old.settled is Settled.MISLED:
            return self._start_over()
        if self._state is State.RUNNING:
            # It returned without finishing: what it said so far is the answer, as it would be without a cache.
            if self._started:
                await self._withhold("unfinished", more=True)
            else:
                self._step(Event.RAISED)
        return None

    def _why_missing(self) -> str:
        """For the metrics."""
        if self._old is None:
            lagging = self._read_path.lagging(self._key, self._read_path.clock())
            return "lagging" if lagging else self._read_path.telemetry.stores.removals.why(self._key)
        return "expired" if self._read_path.clock() >= self._old.response.fresh_until_ms else "request"

    def _answered(self) -> None:
        """The handler is done, or at least its answer is."""
        self._read_path.telemetry.requests.handler_s.observe(time.perf_counter() - self._handler_begun_s)
        end(self._handler_span)

    def _start_over(self) -> None:
        """The handler's 304 was about another answer than the one that was stored: ask it for the whole."""
        self._read_path.drop(self._key)
        self._land(Landing.LEFT)
        self._old, self._started, self._headers = None, False, []
        self._step(Event.MISLED)

    def _handler_scope(self) -> Scope:
        """What the handler is shown: what is keyed. Conditions are evaluated here, against the whole answer: it must not reduce
        it to a 304. Ignored parameters, and what of `Forwarded` is not keyed, must not influence an answer for everybody."""
        facts, headers = self._facts, self._scope["headers"]
        conditional = facts.if_none_match is not None or facts.if_modified_since is not None
        validators = [] if self._old is None else self._old.conditions
        if (self._flight is not None and conditional) or validators:
            headers = [*((name, value) for name, value in headers if name not in CONDITIONS), *validators]
        if any(name == b"forwarded" for name, _ in facts.claims):
            headers = [(name, shown(name, value)) for name, value in headers]
        if headers is self._scope["headers"] and self._plan.query == self._scope["query_string"]:
            return self._scope
        return {**self._scope, "headers": headers, "query_string": self._plan.query}

    async def _receive_keyed(self) -> Message:
        """The handler's `receive`. A body that no field announced is not part of the key."""
        message = await self._receive()
        if message["type"] == "http.request" and message.get("body") and self._state is State.RUNNING:
            self._fat = not self._facts.has_body
        return message

    async def _take(self, message: Message) -> None:
        """The handler's `send`."""
        async with self._turn:
            if self._old is not None and self._old.settled is not None:
                pass  # the client was, or will be, answered otherwise
            elif self._state is not State.RUNNING:
                await self._send(message)
            elif message["type"] == "http.response.start":
                await self._take_start(message)
            elif message["type"] == "http.response.body" and self._started:
                await self._take_body(message)
            else:
                if self._started:  # an extension that sends the body in another way
                    await self._withhold("extension", more=True)
                await self._send(message)

    async def _take_start(self, message: Message) -> None:
        self._started = True
        self._status = message["status"]
        self._headers = [(bytes(name), bytes(value)) for name, value in message.get("headers", ())]
        fields = [(name.lower(), value) for name, value in self._headers]
        if self._old is not None:
            match self._old.settle(self._status, fields):
                case Settled.CONFIRMED:
                    self._status, self._headers = self._old.response.status, self._old.freshened(fields)
                    self._chunks = [self._old.response.body]
                    return await self._complete(self._old.response.body)
                case Settled.MISLED:
                    return None
                case Settled.SERVED_ON_ERROR if await self._spared(b"fwd=stale; fwd-status=%d" % self._status):
                    return None
        reason = freshness.refusal(self._status, fields, personal=self._policy.personal)
        if reason is not None and self._read_path.settings.explicit:
            now_s = self._read_path.clock() / 1000
            reason = shared_cache_rules.refusal(self._status, fields, credentials=self._credentials, now_s=now_s)
        if message.get("trailers"):
            reason = reason or "trailers"
        for value in freshness.values(fields, b"content-type"):
            if value.lower().startswith(b"text/event-stream"):
                reason = reason or "stream"
        for value in freshness.values(fields, b"content-length"):
            if freshness.delta_s(value.decode("latin-1")) > self._read_path.settings.max_body_bytes:
                reason = reason or "too-large"
        if reason is not None:
            await self._withhold(reason, more=True)
        return None

    async def _spared(self, how: bytes) -> bool:
        """Send what there was instead of an error, if that is allowed and nothing was sent yet (RFC 5861, section 4)."""
        old = self._old
        if old is None or self._state is not State.RUNNING or not old.rescues():
            return False
        if not await self._send_from(old.resident, how, stale=True):
            return False
        old.settled = Settled.SERVED_ON_ERROR
        self._land(Landing.LEFT)
        self._read_path.telemetry.requests.served("stale")
        self._read_path.telemetry.requests.stale_served.labels("error").inc()
        self._step(Event.SERVED_ON_ERROR)
        return True

    async def _take_body(self, message: Message) -> None:
        chunk = message.get("body", b"")
        more = bool(message.get("more_body", False))
        self._chunks.append(chunk)
        self._held_bytes += len(chunk)
        if self._held_bytes > self._read_path.settings.max_body_bytes:
            await self._withhold("too-large", more=more)
        elif not more:
            await self._complete(b"".join(self._chunks))
        elif self._impatience is None:
            loop = asyncio.get_running_loop()
            self._impatience = loop.call_later(HOLD_S, self._grow_impatient)

    async def _complete(self, body: bytes) -> None:
        """The answer is whole: make an entry of it, and answer from that; or hand it on without leave to keep it."""
        read_path = self._read_path
        self._answered()
        headers = storable(self._headers, body, status=self._status)
        if headers is None:
            return await self._withhold("length", more=False)
        if self._fat:
            return await self._withhold("request-body", more=False)
        if self._routes.rerouted(self._plan, self._shown):
            return await self._withhold("rerouted", more=False)
        assert self._recorder is not None
        outcome = self._recorder.outcome(read_path.clock())
        self._recorder.close()
        self._step(Event.ANSWERED)
        try:
            with self._tracing.inside(self._span):
                verdict = await read_path.admit(
                    Answer(status=self._status, headers=headers, body=body),
                    outcome,
                    target=self._target,
                    request_headers=self._scope["headers"],
                    since=self._since,
                    policy=self._policy,
                    leave=self._outgoing.leaves(self._policy) and not self._facts.has_body,
                    asked_ms=self._asked_ms,
                    credentials=self._credentials,
                )
        except Exception as error:  # a mistake of ours must not cost the handler's answer
            read_path.telemetry.failure("read-path", "read_path.admit_failed", error, kind=type(error).__name__)
            self._step(Event.UNGUARDED)
            self._reasons = ("failed",)
        else:
            if verdict.event is not Event.UNGUARDED:
                self._step(Event.REGISTERED)
            self._step(verdict.event)
            self._reasons, self._detail = verdict.reasons, verdict.detail
            if verdict.resident is not None:
                self._stored(verdict.resident)
                read_path.telemetry.requests.missed(self._missing, seconds=time.perf_counter() - self._begun_s)
                received = self._old is None or self._old.settled is None
                await self._send_from(verdict.resident, self._forwarded() + b"; stored", received=received)
                return None
        return await self._hand_on(more=False)

    def _stored(self, resident: Resident) -> None:
        """Followers are served from an entry that may be served as it is; others would only queue up for nothing."""
        now_ms = self._read_path.clock()
        if resident.response.fresh_until_ms > now_ms:
            return self._land(Landing.STORED)
        self._read_path.flights.leave_uncoalesced(self._key, now_ms=now_ms)
        return self._land(Landing.REFUSED)

    def _forwarded(self) -> bytes:
        return b"fwd=uri-miss" if self._old is None else self._old.forwarded()

    async def _withhold(self, reason: str, *, more: bool) -> None:
        """Not stored after all: from here on the answer goes through as it comes."""
        assert self._recorder is not None
        self._step(Event.UNSTORABLE)
        self._reasons = (reason,)
        if reason == "too-large" and not self._recorder.outcome(self._read_path.clock()).reads:
            self._reasons = ("no-reads", reason)
        await self._hand_on(more=more)

    async def _hand_on(self, *, more: bool) -> None:
        read_path = self._read_path
        if self._recorder is not None:
            self._recorder.close()
        failed = self._status >= 500
        self._land(Landing.LEFT if failed else Landing.REFUSED)
        if not failed and not _TRANSIENT.issuperset(self._reasons):
            read_path.flights.leave_uncoalesced(self._key, now_ms=read_path.clock())
        read_path.telemetry.requests.missed(self._missing, seconds=time.perf_counter() - self._begun_s)
        for reason in self._reasons:
            read_path.telemetry.requests.uncacheable.labels(reason).inc()
        headers = self._outgoing.withheld(
            self._status, self._headers, self._reasons, self._forwarded(), self._detail, self._policy
        )
        await self._send({"type": "http.response.start", "status": self._status, "headers": headers})
        if self._chunks or not more:
            body, self._chunks = b"".join(self._chunks), []
            await self._send({"type": "http.response.body", "body": body, "more_body": more})

    # Answers that come in pieces, and slowly

    def _grow_impatient(self) -> None:
        self._release_task = asyncio.ensure_future(self._release())

    async def _release(self) -> None:
        async with self._turn:
            if self._state is State.RUNNING:
                await self._withhold("stream", more=True)

    async def _stop_releasing(self) -> None:
        if self._impatience is not None:
            self._impatience.cancel()
        if self._release_task is not None:
            await asyncio.wait((self._release_task,))
            if not self._release_task.cancelled() and (error := self._release_task.exception()) is not None:
                self._read_path.telemetry.event("exchange.client_left", error=str(error))
