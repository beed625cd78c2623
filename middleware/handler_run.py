"""The handler run, middle part of an exchange: the application runs with its reads recorded and its answer held back.

The handler runs in the request's own task. Its context, its exceptions and its background tasks are the same as without a cache.
Its answer is held back until it is complete, or until it is known that it will not be stored; then it is delivered.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from quaestor.capture import Recorder, not_recording
from quaestor.middleware.bodies import UnkeyedBody
from quaestor.middleware.constants_of_run import constants_of_run
from quaestor.middleware.context import ExchangeContext
from quaestor.middleware.delivery import Delivery
from quaestor.middleware.handovers import Missed, WholeAnswer
from quaestor.middleware.headers import UNKEYED
from quaestor.middleware.held_answer import HeldAnswer, ReleaseTimer
from quaestor.middleware.interface import Message
from quaestor.middleware.never_stored import UNNOTICED, WORD_OF_ORIGIN
from quaestor.middleware.partial_answers import BegunEntry, as_received, storable_part
from quaestor.middleware.pending_entry import PendingEntry
from quaestor.middleware.shown_request import ShownRequest
from quaestor.middleware.stale_entry import Settled
from quaestor.middleware.storable_fields import storable
from quaestor.model import Uncacheable, Version
from quaestor.observability.tracing import end
from quaestor.read_path import freshness, partial_answers, shared_cache_rules, validation
from quaestor.read_path.asked_fields import CONDITION
from quaestor.read_path.coalescing import Landing
from quaestor.read_path.decision import TERMINAL, Event, State, step
from quaestor.read_path.doorkeeper import REASON as DOORKEEPER
from quaestor.read_path.doorkeeper import Turn
from quaestor.read_path.missing_reads import MISSING_READ
from quaestor.read_path.partial_answers import Part
from quaestor.read_path.service import ReadPath


@dataclass(slots=True)
class RunStart:
    """Beginning of a handler run.

    since: newest version that the grid had reported.
    asked_ms: wall time.
    begun_s: by time.perf_counter().
    span: of the handler, for tracing.
    """

    since: Version = 0
    asked_ms: int = 0
    begun_s: float = 0.0
    span: Any = None


class HandlerRun:
    """One run of the application for a request whose look-up missed. run() is called once.

    missed: the hand-over of the look-up.
    body: the request's, as the handler reads it.
    span: of the whole exchange, for tracing.
    turn: the doorkeeper's decision about the answer.
    state: of the exchange; State.LOOKING if the handler's 304 was about another answer than the stored one.
    reasons: why the answer was not stored; empty if it was stored, or if there is no answer.
    """

    def __init__(
        self, context: ExchangeContext, missed: Missed, body: UnkeyedBody, span: Any, *, turn: Turn = Turn.FIRST
    ) -> None:
        self.state = State.RUNNING
        self.reasons: tuple[str, ...] = ()
        self._context = context
        self._missed = missed
        self._body = body
        self._delivery = Delivery(context, missed, span, turn=turn)
        self._held = HeldAnswer()
        self._timer: ReleaseTimer | None = None  # of an answer in pieces; timer and run refer to each other
        self._turn = asyncio.Lock()
        self._settled: Settled | None = None
        self._part: Part | None = None
        self._request = ShownRequest(context, missed, reading=self._reading)
        self._recorder: Recorder | None = None
        self._pending = PendingEntry(self._delivery, context.parts.refreshes)
        self._start = RunStart()

    @property
    def _read_path(self) -> ReadPath:
        return self._context.parts.read_path

    async def run(self) -> None:
        """Run the handler, and deliver its answer. Raises the handler's exceptions, even if another answer was sent."""
        tracing = self._read_path.process.telemetry.tracing
        self._start.begun_s = time.perf_counter()
        self._start.span = tracing.begin("quaestor.handler", missing=self._missed.why)
        block = self._read_path.run_capture.recording()
        try:
            with tracing.inside(self._start.span), block as self._recorder:
                self._recorder.writes.on_attempt = self._context.parts.quarantines.on_write(self._context.plan)
                await self._run_recorded()
        finally:
            if self._pending.waits and self._recorder is not None:
                await self._pending.publish(block.left_behind(), self._recorder)
        await self._finish()

    async def _run_recorded(self) -> None:
        self._start.since, self._start.asked_ms = self._read_path.watermark(), self._read_path.clock()
        try:
            await self._context.parts.app(self._request.scope, self._body.receive, self._take)
        except BaseException as error:
            # Raised even if the client receives no error: a middleware around this one may log exceptions.
            if isinstance(error, Exception):
                await self._serve_on_error(b"fwd=stale; detail=error")
            else:
                self._pending.discard()
            if self.state not in TERMINAL:
                self._step(Event.RAISED)
            raise
        finally:
            end(self._start.span)
            if self._timer is not None:
                await self._timer.stop(self._read_path.process.telemetry)
            self._hand_back()

    def _hand_back(self) -> None:
        # After a misleading 304 the handler runs again, with the scope as it came.
        self._request.hand_back(changed=self._settled is not Settled.MISLED)

    def _step(self, event: Event) -> None:
        self.state = step(self.state, event)

    async def _finish(self) -> None:
        """Complete the exchange after the handler has returned."""
        if self._settled is Settled.MISLED:
            # The 304 was about another answer than the stored one: the handler has to return the whole.
            self._read_path.lookup.drop(self._missed.key)
            self._missed.land(Landing.LEFT)
            self._step(Event.MISLED)
        elif self.state is State.RUNNING:
            # The handler returned without finishing. Its messages up to here are the answer, as without a cache.
            if self._held.started:
                await self._withhold("unfinished", more=True)
            else:
                self._step(Event.RAISED)

    async def _take(self, message: Message) -> None:
        """Take one message of the handler: its `send`."""
        if self._timer is None:  # no other task acts on the answer yet
            return await self._take_in_turn(message)
        async with self._turn:
            return await self._take_in_turn(message)

    async def _take_in_turn(self, message: Message) -> None:
        if self._settled is not None:
            pass  # the client receives another answer
        elif self.state is not State.RUNNING:
            await self._context.send(message)
        elif message["type"] == "http.response.start":
            await self._take_start(message)
        elif message["type"] == "http.response.body" and self._held.started:
            await self._take_body(message)
        else:
            if self._held.started:  # an extension that sends the body in another way
                await self._withhold("extension", more=True)
            if self._settled is None:
                await self._context.send(message)

    async def _take_start(self, message: Message) -> None:
        self._held.start(message["status"], message.get("headers", ()))
        fields = [(name.lower(), value) for name, value in self._held.headers]
        if await self._settles_stale(fields):
            return
        reason = self._refusal(message, self._held.headers if self._held.completed else fields)
        if (
            self._held.status == 304
            and self._request.asked.conditions is not None
            and self._request.asked.conditions.shown
        ):
            assert self._recorder is not None
            # Its reads show that the whole answer could be stored.
            reason = CONDITION if self._recorder.reading else reason
        if reason is not None:
            await self._withhold(reason, more=True)

    async def _settles_stale(self, fields: Sequence[tuple[bytes, bytes]]) -> bool:
        """Whether the answer decides about a stored answer instead of going to the client."""
        stale, status = self._missed.stale, self._held.status
        settled = None if stale is None else stale.settled(status, fields)
        match settled:
            case Settled.CONFIRMED:
                assert stale is not None
                self._settled = settled
                self._held.confirm(stale.response.status, stale.freshened(fields), stale.response.body)
                await self._complete()
                return True
            case Settled.MISLED:
                self._settled = settled
                return True
            case Settled.COMPLETED:
                assert isinstance(stale, BegunEntry)
                self._held.complete(*stale.completed(fields))
                return False
            case Settled.SERVED_ON_ERROR:
                return await self._serve_on_error(b"fwd=stale; fwd-status=%d" % status)
            case _:
                return False

    def _refusal(self, message: Message, fields: Sequence[tuple[bytes, bytes]]) -> str | None:
        """Return why an answer with this beginning will not be stored; None if it may be."""
        status, settings = self._held.status, self._read_path.process.settings
        if self._missed.part:
            self._part = storable_part(self._context, status, fields, self._missed.key)
            if self._part is None:
                return "partial"
            # A part is stored if the whole might be (RFC 9111, section 3.3).
            status, fields = 200, partial_answers.without_place(fields)
        reason = freshness.refusal(status, fields, personal=self._context.plan.policy.personal)
        if reason is not None and settings.lifetimes.explicit:
            now_s = self._read_path.clock() / 1000
            reason = shared_cache_rules.refusal(
                status, fields, credentials=self._context.credentials, now_s=now_s,
                authorization_only=self._context.facts.authorization_only, unlisted=self._context.facts.unlisted,
                heuristic=settings.lifetimes.heuristic_fraction,
            )  # fmt: skip
        if message.get("trailers"):
            reason = reason or "trailers"
        streams = too_large = False
        for name, value in fields:
            if name == b"content-type":
                streams = streams or value.lower().startswith(b"text/event-stream")
            elif name == b"content-length":
                too_large = too_large or freshness.delta_s(value.decode("latin-1")) > settings.store.max_body_bytes
        return reason or ("stream" if streams else "too-large" if too_large else None)

    async def _serve_on_error(self, how: bytes) -> bool:
        """Send the older answer instead of an error, if that is allowed and nothing was sent yet."""
        if self.state is not State.RUNNING or not await self._delivery.send_instead_of_error(how):
            return False
        self._settled = Settled.SERVED_ON_ERROR
        self._step(Event.SERVED_ON_ERROR)
        return True

    async def _take_body(self, message: Message) -> None:
        more = bool(message.get("more_body", False))
        self._held.add(message.get("body", b""))
        if self._held.size > self._read_path.process.settings.store.max_body_bytes:
            await self._withhold("too-large", more=more)
        elif not more:
            await self._complete()
        elif self._timer is None:
            self._timer = ReleaseTimer(self._release)
            self._timer.begin()

    async def _complete(self) -> None:
        """Make an entry of the whole answer and send it; or send the answer with copies forbidden."""
        handler_s = time.perf_counter() - self._start.begun_s
        self._read_path.process.telemetry.requests.handler_s.observe(handler_s)
        self._delivery.note_run(handler_s)
        end(self._start.span)
        body = self._held.body
        headers = storable(self._held.headers, body, status=self._held.status)
        if headers is None:
            return await self._withhold("length", more=False)
        if self._part is not None and self._part.span.size != len(body):
            return await self._withhold("length", more=False)
        if self._settled is Settled.CONFIRMED and UNKEYED in headers:
            # The stored answer's UNKEYED is this cache's own: an origin's `Vary: *` is never stored.
            headers.remove(UNKEYED)
            self._request.asked.note_everything()
        if not self._request.tracked:
            self._context.parts.never_stored.forget(self._missed.key)
            return await self._withhold(UNNOTICED, more=False)
        if self._body.seen:
            return await self._withhold("request-body", more=False)
        if self._context.parts.routes.rerouted(self._context.plan, self._request.scope):
            return await self._withhold("rerouted", more=False)
        assert self._recorder is not None
        if self._reading() and self._delivery.refused():
            return await self._withhold(DOORKEEPER, more=False)
        text = self._request_text()
        outcome = self._recorder.outcome(
            self._read_path.clock(),
            started_ms=self._start.asked_ms,
            asked=text,
            constants=constants_of_run(self._context, self._request.asked, text),
        )
        self._context.plan.traffic.read(read.query.namespace for read in outcome.reads)
        if self._held.completed and outcome.reads:
            # The handler read for the remaining part only.
            return await self._withhold("partial", more=False)
        self._recorder.close()
        self._step(Event.ANSWERED)
        context, verifications, request = self._context, self._context.parts.verifications, self._request
        # Made before the scope is handed back, so that a repetition sees the scope as it is now. Most answers without reads
        # are not stored.
        repeatable = (
            verifications.repeatable(context.plan, request.given, request.surroundings) if outcome.reads else None
        )
        self._hand_back()
        answer = WholeAnswer(
            status=self._held.status if self._part is None else 200,
            headers=headers if self._part is None else partial_answers.without_place(headers),
            body=body,
            outcome=outcome,
            asked=self._request.asked,
            since=self._start.since,
            asked_ms=self._start.asked_ms,
            part=self._part,
        )
        at_most_ms = None if repeatable is None else verifications.lives_at_most_ms(context.plan)
        with not_recording():  # the cache's own timers would keep the context of the handler alive
            verdict = await self._delivery.admit(answer, at_most_ms=at_most_ms)
        if verdict.event is not Event.UNGUARDED:
            self._step(Event.REGISTERED)
        self._step(verdict.event)
        self.reasons = verdict.reasons
        await self._after_own_writes()
        if verdict.resident is not None:
            self._pending.hold(verdict.resident, asked_ms=self._start.asked_ms, surroundings=request.surroundings)
            if repeatable is not None:
                stored = verdict.resident.response
                stored = stored if self._part is None else as_received(stored, headers, body)
                self._pending.verify = partial(verifications.stored, repeatable, context.plan, stored, outcome.reads)
            with not_recording():  # the server's timers, of keep-alive for example, would keep it alive too
                return await self._delivery.send_stored(verdict.resident, confirmed=self._settled is Settled.CONFIRMED)
        self._learn()
        return await self._delivery.hand_on(
            self._held.release(), self.reasons, detail=verdict.detail, had=self._client_has_it()
        )

    def _request_text(self) -> str:
        """Return the path of the request and the keyed part of its query."""
        return f"{self._context.scope['path']}?{self._context.plan.query.decode('latin-1')}"

    async def _withhold(self, reason: str, *, more: bool) -> None:
        """Decide that the answer is not stored: from here on its messages pass through."""
        assert self._recorder is not None
        self._step(Event.UNSTORABLE)
        self.reasons = self._because(reason)
        self._learn()
        self._recorder.close()
        await self._after_own_writes()
        self._hand_back()
        had = reason != "stream" and self._client_has_it()
        await self._delivery.hand_on(self._held.release(), self.reasons, more=more, had=had)
        if had:
            self._settled = Settled.HAD

    def _because(self, reason: str) -> tuple[str, ...]:
        """Return the reasons why an answer is not stored, with `no-reads` if it has read nothing until now."""
        assert self._recorder is not None
        if reason not in ("too-large", "extension"):
            return (reason,)
        outcome = self._recorder.outcome(self._read_path.clock())
        why = {reason.reason for reason in outcome.reasons}
        if outcome.reads or Uncacheable.NO_READS not in why:
            return (reason,)
        announced = any(name.lower() == b"content-length" for name, _ in self._held.headers)
        # Its length was announced before any read: a file.
        return ("no-reads",) if announced and len(why) == 1 and not self._held.size else ("no-reads", reason)

    def _reading(self) -> bool:
        return self._recorder is not None and self._recorder.reading

    def _learn(self) -> None:
        """Remember what prevents storage: a route whose handler sees conditions or keeps a memo, or a request whose answers
        forbid storage."""
        if CONDITION in self.reasons:
            self._context.parts.asked_whole.learn(self._context.plan.route)
        if MISSING_READ in self.reasons:
            self._context.parts.verifications.doubt(self._context.plan)
        if not WORD_OF_ORIGIN.isdisjoint(self.reasons):
            self._context.parts.never_stored.learn(self._missed.key)

    def _client_has_it(self) -> bool:
        """Whether the handler would have answered 304, had it seen the conditions that it looked up."""
        facts = self._context.facts
        if not self._request.conditions_withheld or facts.has_body or self._held.status != 200 or self._held.confirmed:
            return False
        fields = [(name.lower(), value) for name, value in self._held.headers]
        return validation.holds(fields, if_none_match=facts.if_none_match, if_modified_since=facts.if_modified_since)

    async def _after_own_writes(self) -> None:
        """Hold the answer back until its handler's writes have taken effect, so that no older state is served after it."""
        assert self._recorder is not None
        if (writes := self._recorder.writes).wrote:
            await self._read_path.own_writes.passed(writes.version)

    async def _release(self) -> None:
        """Stop holding back an answer that comes slowly in pieces."""
        async with self._turn:
            if self.state is State.RUNNING:
                await self._withhold("stream", more=True)
