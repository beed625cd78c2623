"""Handler runs whose answers the doorkeeper refuses before they exist.

Nothing of such a run is stored. Therefore its reads are not recorded, its look-ups in the request are not noted, and its answer
is not held back. Its writes are noted as in every run.
"""

from __future__ import annotations

import time

from quaestor.capture import noting_writes
from quaestor.middleware.context import ExchangeContext, ExchangeParts
from quaestor.middleware.handovers import Missed
from quaestor.middleware.interface import Message, RawHeaders, Receive, Scope, Send
from quaestor.middleware.own_writes import after_own_writes
from quaestor.middleware.routes import Plan
from quaestor.observability.tracing import asked_by, asked_no_more, end
from quaestor.read_path import freshness
from quaestor.read_path.coalescing import Landing
from quaestor.read_path.decision import State
from quaestor.read_path.doorkeeper import REASON as DOORKEEPER
from quaestor.read_path.doorkeeper import Turn
from quaestor.read_path.key import Target
from quaestor.read_path.request import RequestFacts

_ABSENT = "absent"


class Door:
    """The door of one middleware: refuses answers to first requests before a look-up has begun.

    The door stays shut while another part has to see the request first. Such parts are a store that is shared with other
    processes, a span of the request, and the rules for answers without reads.
    """

    def __init__(self, parts: ExchangeParts) -> None:
        self._parts = parts
        read_path = parts.read_path
        process = read_path.process
        self._read_path = read_path
        self._doorkeeper = read_path.admission.doorkeeper
        self._coalescing = read_path.coalescing
        self._why = process.telemetry.stores.removals.why
        self._shut = process.telemetry.tracing.enabled or process.settings.lifetimes.explicit

    def turn(self, plan: Plan, facts: RequestFacts, scope: Scope, key: str, now_ms: int) -> Turn | None:
        """Ask the doorkeeper about a request that memory has not answered. None: it has to be asked after the look-up."""
        usefulness = self._doorkeeper.kept_route(plan.probation)
        if (
            usefulness is None
            or self._shut
            or self._coalescing.leases is not None
            or not _as_it_came(plan, facts, scope)
            or self._coalescing.under_way(key) is not None
            or self._read_path.lookup.knows(key)
            or self._why(key) != _ABSENT
            or not self._read_path.serving(now_ms)
        ):
            return None
        return self._doorkeeper.turn_on(usefulness, key, now_ms=now_ms)

    async def run(
        self, plan: Plan, target: Target, key: str, scope: Scope, receive: Receive, send: Send, begun_s: float
    ) -> None:
        """Answer a refused request by its handler.

        begun_s: when the request came, by time.perf_counter().
        """
        requested = asked_by(scope["headers"])
        try:
            run = _RefusedRun(
                self._parts, plan, send, begun_s, b"fwd=uri-miss" if key == target.key else b"fwd=vary-miss"
            )
            await run.run(scope, receive)
        finally:
            asked_no_more(requested)


def turn(context: ExchangeContext, missed: Missed) -> Turn:
    """Ask the doorkeeper about the answer to a request whose look-up missed."""
    flight = missed.flight
    # Followers of a live answer ask again and again, and a request that others wait for is no single one.
    if context.reading is not None or missed.why != _ABSENT or flight is None or flight.waited or flight.followed:
        return Turn.FIRST
    read_path = context.parts.read_path
    return read_path.admission.doorkeeper.turn(context.plan.probation, missed.key, now_ms=read_path.clock())


def may_pass(context: ExchangeContext, missed: Missed) -> bool:
    """Whether the handler of a refused request may run on the request as it came. False: the cache answers a part of the request
    itself, a condition for example."""
    return (
        context.facts.plain
        and not context.credentials
        and context.scope["method"] == "GET"
        and _as_it_came(context.plan, context.facts, context.scope)
        and missed.stale is None
        and not missed.part
        and not context.parts.read_path.process.settings.lifetimes.explicit
    )


async def run_refused(context: ExchangeContext, missed: Missed) -> tuple[State, tuple[str, ...]]:
    """Run the handler of a refused request, and pass its answer on. Returns the state of the exchange, and why the answer was
    not stored. Raises the handler's exceptions."""
    # A request that comes meanwhile is the second one: it runs its own handler, and its answer is stored.
    missed.land(Landing.LEFT)
    run = _RefusedRun(context.parts, context.plan, context.send, missed.begun_s, missed.forwarded(confirmed=False))
    tracing = context.parts.read_path.process.telemetry.tracing
    span = tracing.begin("quaestor.handler", missing=missed.why)
    try:
        with tracing.inside(span):
            await run.run(context.scope, context.receive)
    finally:
        end(span)
    return (State.WITHHELD, run.reasons) if run.reasons else (State.FAILED, ())


def _as_it_came(plan: Plan, facts: RequestFacts, scope: Scope) -> bool:
    """Whether a recorded run would show its handler the same fields and the same query."""
    return not facts.claims and plan.query == scope["query_string"]


class _RefusedRun:
    """One run of the application whose answer passes through. run() is called once.

    forwarded: why the handler runs, as a parameter of Cache-Status.
    reasons: why the answer is not stored; empty: it has not begun.
    """

    __slots__ = ("_begun_s", "_came_s", "_forwarded", "_parts", "_plan", "_send", "reasons")

    def __init__(self, parts: ExchangeParts, plan: Plan, send: Send, came_s: float, forwarded: bytes) -> None:
        self.reasons: tuple[str, ...] = ()
        self._parts = parts
        self._plan = plan
        self._send = send
        self._came_s = came_s
        self._forwarded = forwarded

    async def run(self, scope: Scope, receive: Receive) -> None:
        """Run the handler, and pass its answer on. Raises the handler's exceptions."""
        self._begun_s = time.perf_counter()
        with noting_writes() as writes:
            writes.on_attempt = self._parts.quarantines.on_write(self._plan)
            own_writes = self._parts.read_path.own_writes
            await self._parts.app(scope, receive, after_own_writes(own_writes, writes, self._pass_on))

    async def _pass_on(self, message: Message) -> None:
        kind = message["type"]
        if kind == "http.response.start":
            message = {**message, "headers": self._fields(message)}
        await self._send(message)
        if kind == "http.response.body" and not message.get("more_body", False):
            handler_s = time.perf_counter() - self._begun_s
            read_path = self._parts.read_path
            read_path.process.telemetry.requests.handler_s.observe(handler_s)
            read_path.admission.doorkeeper.note_run(self._plan.probation, handler_s)

    def _fields(self, message: Message) -> RawHeaders:
        """Count the miss, and return the fields of the answer: others may not keep it."""
        plan, status = self._plan, message["status"]
        headers = [(bytes(name), bytes(value)) for name, value in message.get("headers", ())]
        fields = [(name.lower(), value) for name, value in headers]
        reason = freshness.refusal(status, fields, personal=plan.policy.personal) or DOORKEEPER
        self.reasons = (reason,)
        requests = self._parts.read_path.process.telemetry.requests
        requests.missed(_ABSENT, seconds=time.perf_counter() - self._came_s)
        requests.refused(self.reasons)
        plan.traffic.missed(_ABSENT)
        plan.traffic.refused(self.reasons)
        return self._parts.outgoing.withheld(status, headers, self.reasons, self._forwarded, policy=plan.policy)
