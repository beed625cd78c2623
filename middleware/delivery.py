"""The delivery, last part of an exchange: send a handler's answer, as an entry or uncached, or an older one instead of an
error."""

from __future__ import annotations

import time
from typing import Any

from quaestor.middleware.context import ExchangeContext
from quaestor.middleware.handovers import HandlerAnswer, Missed, WholeAnswer
from quaestor.middleware.never_stored import UNNOTICED
from quaestor.middleware.sending import send_entry
from quaestor.model import Uncacheable
from quaestor.read_path.answered import AnsweredRequest, ObservedRun
from quaestor.read_path.asked_fields import CONDITION
from quaestor.read_path.coalescing import Landing
from quaestor.read_path.decision import Event
from quaestor.read_path.doorkeeper import REASON as DOORKEEPER
from quaestor.read_path.doorkeeper import Turn
from quaestor.read_path.entries import Answer, Verdict
from quaestor.store.memory import Resident

_TRANSIENT = frozenset(
    {"refused", "died", "failed", "lifetime", CONDITION, DOORKEEPER, UNNOTICED, Uncacheable.READ_FAILED.value}
)
"""Reasons that predict nothing about the next answer under the same key."""


class Delivery:
    """The end of one exchange. Whichever answer is sent, the flight lands and the miss is counted.

    missed: the hand-over of its look-up.
    span: of the whole exchange, for tracing.
    turn: the doorkeeper's decision about the answer.
    """

    def __init__(self, context: ExchangeContext, missed: Missed, span: Any, *, turn: Turn = Turn.FIRST) -> None:
        self._context = context
        self._read_path = context.parts.read_path
        self._missed = missed
        self._span = span
        self._turn = turn
        self._storing_s = 0.0

    async def admit(self, answer: WholeAnswer, *, at_most_ms: int | None = None) -> Verdict:
        """Make an entry of an answer. Never raises an Exception: a fault of the cache must not cost the handler's answer.

        at_most_ms: upper bound of the entry's lifetime.
        """
        context, read_path = self._context, self._read_path
        begun_s = time.perf_counter()
        try:
            with read_path.process.telemetry.tracing.inside(self._span):
                return await read_path.admission.admit(
                    Answer(status=answer.status, headers=answer.headers, body=answer.body, part=answer.part),
                    AnsweredRequest(
                        target=context.target,
                        headers=context.scope["headers"],
                        policy=context.plan.policy,
                        credentials=context.credentials,
                        authorization_only=context.facts.authorization_only,
                        unlisted=context.facts.unlisted,
                        with_body=context.facts.has_body,
                        leave=context.parts.outgoing.leaves(context.plan.policy) and not context.facts.has_body,
                        route=context.plan.route,
                    ),
                    ObservedRun(
                        outcome=answer.outcome, asked=answer.asked, since=answer.since, asked_ms=answer.asked_ms
                    ),
                    at_most_ms=at_most_ms,
                )
        except Exception as error:
            read_path.process.telemetry.failure("read-path", "read_path.admit_failed", error, kind=type(error).__name__)
            return Verdict(event=Event.UNGUARDED, reasons=("failed",))
        finally:
            self._storing_s = time.perf_counter() - begun_s

    async def send_stored(self, resident: Resident, *, confirmed: bool) -> None:
        """Send an answer that will become an entry. publish() serves the requests that wait for it.

        confirmed: it is an older answer, confirmed by the handler's 304.
        """
        self._watch(resident)
        self._count_miss()
        how = self._missed.forwarded(confirmed=confirmed) + b"; stored"
        await send_entry(
            self._context,
            resident,
            how=how,
            received=not confirmed,
            layer=self._missed.layer if confirmed else "the handler",
        )

    async def send_instead_of_error(self, how: bytes) -> bool:
        """Send the older answer, if that is allowed (RFC 5861, section 4). False: nothing was sent.

        how: the parameters of Cache-Status.
        """
        stale = self._missed.stale
        if stale is None or not stale.may_serve_on_error():
            return False
        if not await send_entry(self._context, stale.resident, how=how, stale=True, layer=self._missed.layer):
            return False
        self._missed.land(Landing.LEFT)
        self._read_path.process.telemetry.requests.served("stale")
        self._context.plan.traffic.hits += 1
        self._read_path.process.telemetry.requests.stale_served.labels("error").inc()
        return True

    async def hand_on(
        self,
        answer: HandlerAnswer,
        reasons: tuple[str, ...],
        *,
        detail: str = "",
        more: bool = False,
        had: bool = False,
    ) -> None:
        """Send the handler's own answer, and forbid copies of it.

        reasons, detail: why it is not stored, as labels and as text for debugging.
        more: further pieces of its body will follow, past this delivery.
        had: the client already has the answer: send a 304 instead, and no further pieces.
        """
        context, requests = self._context, self._read_path.process.telemetry.requests
        if context.reading is not None:
            context.reading.withheld(reasons)
        failed = answer.status >= 500
        # Refusals of this kind may pass: the next request may store its answer.
        again = failed or not {CONDITION, DOORKEEPER}.isdisjoint(reasons)
        self._missed.land(Landing.LEFT if again else Landing.REFUSED)
        if not failed and not _TRANSIENT.issuperset(reasons):
            self._read_path.coalescing.leave_uncoalesced(self._missed.key, now_ms=self._read_path.clock())
        self._count_miss()
        requests.refused(reasons)
        context.plan.traffic.refused(reasons)
        forwarded = self._missed.forwarded(confirmed=answer.confirmed)
        headers = context.parts.outgoing.withheld(
            answer.status, answer.headers, reasons, forwarded, detail, context.plan.policy
        )
        if had:
            headers = context.parts.outgoing.handler_has_it(headers)
            await context.send({"type": "http.response.start", "status": 304, "headers": headers})
            await context.send({"type": "http.response.body", "body": b""})
            return
        await context.send({"type": "http.response.start", "status": answer.status, "headers": headers})
        if answer.body is not None or not more:
            await context.send({"type": "http.response.body", "body": answer.body or b"", "more_body": more})

    def refused(self) -> bool:
        """Whether the doorkeeper refuses the answer, and no other request has waited for it."""
        if self._turn is Turn.REFUSED and self._missed.flight is not None and self._missed.flight.followed:
            self._turn = Turn.FIRST
        return self._turn is Turn.REFUSED

    def note_run(self, seconds: float) -> None:
        """Have the doorkeeper learn how long a whole run of the handler took."""
        self._read_path.admission.doorkeeper.note_run(self._context.plan.probation, seconds)

    def _watch(self, resident: Resident) -> None:
        """Have the doorkeeper learn whether an entry of this route is used, if this process can see its use."""
        plan, read_path = self._context.plan, self._read_path
        if self._turn is Turn.REPEATED:
            return
        if self._missed.why == "absent" and not self._context.parts.outgoing.hides_use(resident, plan.policy):
            resident.usefulness = read_path.admission.doorkeeper.admitted(
                plan.probation, "" if plan.probation is None else plan.route_name, now_ms=read_path.clock()
            )

    async def publish(self, resident: Resident, *, asked_ms: int) -> None:
        """Store an entry for later requests, after its answer was sent and its handler has ended. Never raises an Exception."""
        read_path = self._read_path
        begun_s = time.perf_counter()
        try:
            kept = await read_path.admission.publication.publish(resident, asked_ms=asked_ms)
        except Exception as error:
            read_path.process.telemetry.failure("read-path", "read_path.admit_failed", error, kind=type(error).__name__)
            kept = None
        if kept is None:
            self._unguarded()
            return self._missed.land(Landing.LEFT)
        storing_s = self._storing_s + time.perf_counter() - begun_s
        read_path.admission.doorkeeper.note_storage(self._context.plan.probation, storing_s)
        return self._land_stored(kept)

    def withdraw(self, resident: Resident) -> None:
        """Give up an entry whose handler was cancelled, or has written after its answer."""
        self._read_path.admission.publication.discard(resident)
        self._unguarded()
        self._missed.land(Landing.LEFT)

    def _unguarded(self) -> None:
        """Have followers read again: nothing guards any more what they were sent."""
        if self._context.reading is not None:
            self._context.reading.withdrawn()

    def let_others_run(self) -> None:
        """Stop other requests from waiting for this answer: the client reads slowly, or the handler goes on after it."""
        self._missed.land(Landing.LEFT)

    def _land_stored(self, resident: Resident) -> None:
        """Serve the followers from a fresh entry. An entry that is stale already would only make them queue in vain."""
        now_ms = self._read_path.clock()
        if resident.response.fresh_until_ms > now_ms:
            return self._missed.land(Landing.STORED, resident)
        self._read_path.coalescing.leave_uncoalesced(self._missed.key, now_ms=now_ms)
        return self._missed.land(Landing.REFUSED)

    def _count_miss(self) -> None:
        seconds = time.perf_counter() - self._missed.begun_s
        self._read_path.process.telemetry.requests.missed(self._missed.why, seconds=seconds)
        self._context.plan.traffic.missed(self._missed.why)
