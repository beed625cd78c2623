"""The exchange of one request that memory could not answer at once: look-up, handler run and delivery.

A loop over the table of `read_path.decision` joins the three parts, with a hand-over between each two. A background refresh
does the same without a client.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import Any

from quaestor.middleware.bodies import UnkeyedBody
from quaestor.middleware.context import ExchangeContext
from quaestor.middleware.handler_run import HandlerRun
from quaestor.middleware.handovers import Missed, Renewal
from quaestor.middleware.interface import Receive, Scope, Send
from quaestor.middleware.lookup import Lookup
from quaestor.middleware.refused_run import may_pass, run_refused, turn
from quaestor.middleware.stale_entry import StaleEntry
from quaestor.model import CachedResponse
from quaestor.observability.tracing import asked_by, asked_no_more, tell
from quaestor.read_path.coalescing import Flight, Landing
from quaestor.read_path.decision import TERMINAL, State, step
from quaestor.read_path.doorkeeper import Turn
from quaestor.read_path.request import RequestFacts
from quaestor.read_path.reuse import Use
from quaestor.store.memory import Resident


class Exchange:
    """One request on its way through the cache. The caller has found that an entry may answer it.

    turn: the doorkeeper's decision about its answer; None: the doorkeeper was not asked.
    """

    def __init__(self, context: ExchangeContext, *, turn: Turn | None = None) -> None:
        self._context = context
        self._turn = turn
        self._tracing = context.parts.read_path.process.telemetry.tracing

    async def run(self) -> None:
        """Answer the request. Called once."""
        headers = self._context.scope["headers"]
        requested = asked_by(headers)
        try:
            if not self._tracing.enabled:
                return await self._decide(None)
            with self._tracing.request("quaestor.request", headers) as span:
                await self._decide(span)
        finally:
            asked_no_more(requested)

    async def _decide(self, span: Any) -> None:
        context = self._context
        lookup = Lookup(context)
        body = UnkeyedBody(context.receive, announced=context.facts.has_body)
        state = State.LOOKING
        missed: Missed | None = None
        reasons: tuple[str, ...] = ()
        try:
            while state not in TERMINAL:
                if state is State.RUNNING:
                    assert missed is not None
                    decided = self._turn or turn(context, missed)
                    if decided is Turn.REFUSED and may_pass(context, missed):
                        state, reasons = await run_refused(context, missed)
                        continue
                    run = HandlerRun(context, missed, body, span, turn=decided)
                    await run.run()
                    state, reasons = run.state, run.reasons
                    if state is State.LOOKING:
                        body.begin_again()
                        lookup.look_again(body.receive)
                    continue
                looked = await (lookup.wait() if state is State.WAITING else lookup.look())
                state, missed = step(state, looked.event), looked.missed
                if looked.renewal is not None:
                    self._renew(looked.renewal)
        finally:
            lookup.land(Landing.LEFT)
        if span is not None:
            tell(span, state=state.value, layer=lookup.layer, waited=lookup.waited, uncacheable=reasons)

    def _renew(self, renewal: Renewal) -> None:
        """Run the handler again in the background, once per key, independent of this request."""
        read_path = self._context.parts.read_path
        coalescing, key = read_path.coalescing, renewal.key
        if coalescing.under_way(key) is None and not coalescing.uncoalesced(key, now_ms=read_path.clock()):
            self._context.parts.refreshes.start(self._context.scope, partial(self._again, early=renewal.early))

    async def _again(self, scope: Scope, receive: Receive, send: Send, *, early: CachedResponse | None) -> None:
        facts = self._context.facts
        facts = RequestFacts(host=facts.host, claims=facts.claims, directives={"no-cache": None})
        context = replace(self._context, scope=scope, receive=receive, send=send, facts=facts, credentials=False)
        with self._tracing.request("quaestor.refresh", ()) as span:
            await refresh(context, span, early)


async def refresh(context: ExchangeContext, span: Any, early: CachedResponse | None = None) -> None:
    """Run the handler whatever is stored, and store its answer. Does nothing if another refresh runs or has just ended.

    span: of this refresh, for tracing.
    early: the entry to renew, if its lifetime is not over yet.
    """
    read_path = context.parts.read_path
    key = read_path.variants.key(context.target.key, context.scope["headers"])
    if key is None or read_path.coalescing.under_way(key) is not None:
        return None
    begun_s = time.perf_counter()
    flight = read_path.coalescing.lead(key)
    run: HandlerRun | None = None
    try:
        leads, resident = await _leads(context, key, flight, early)
        if not leads:
            return flight.land(Landing.STORED)
        stale = None if resident is None else StaleEntry(context=context, resident=resident, instead_of_errors=False)
        missed = Missed(key=key, flight=flight, stale=stale, why="refresh", layer="memory", begun_s=begun_s)
        run = HandlerRun(context, missed, UnkeyedBody(context.receive, announced=False), span)
        await run.run()
    finally:
        if run is not None and run.state not in (State.SERVED, State.LOOKING):
            read_path.coalescing.leave_uncoalesced(key, now_ms=read_path.clock())
        flight.land(Landing.LEFT)


async def _leads(
    context: ExchangeContext, key: str, flight: Flight, early: CachedResponse | None
) -> tuple[bool, Resident | None]:
    """Return whether this process is to run the handler, and the entry that it may confirm. False: another process runs it or
    has renewed the entry."""
    lookup = context.parts.read_path.lookup
    if early is not None:
        return await lookup.leads_renewal(flight, early), None
    resident = await lookup.fetch(key, flight)
    fresh = (
        resident is not None
        and context.parts.read_path.usability.use(resident.response, context.plan.policy, {}) is Use.FRESH
    )
    return not fresh, resident
