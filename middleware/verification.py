"""Verification of stored answers, in the background. The handler runs again for the same request; nothing of its answer is kept
or sent. A route is quarantined if its answer differs while every registration of the entry lives.

The rules of comparison and consequence are in `quaestor.read_path.verification` and `quaestor.read_path.probation`.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any

from quaestor.capture import Outcome, recording
from quaestor.middleware.interface import App, Message, RawHeaders, Scope
from quaestor.middleware.quarantines import Quarantines
from quaestor.middleware.refresh import asked_alone, only_request
from quaestor.middleware.request_admission import somebody
from quaestor.middleware.routes import Plan
from quaestor.middleware.storable_fields import storable
from quaestor.model import CachedResponse, CapturedRead, Reason, Uncacheable, Version
from quaestor.read_path.hidden_inputs import HIDDEN_INPUT
from quaestor.read_path.probation import DIVERGED
from quaestor.read_path.quarantine_trial import TRIAL_SHARE, Trial
from quaestor.read_path.request import CONDITIONS, inspect
from quaestor.read_path.service import ReadPath
from quaestor.read_path.verification import (
    Finding,
    Fingerprint,
    chosen_otherwise,
    differences,
    fingerprint,
    reads_more,
)

MOST_UNDER_WAY = 64
"""Verifications under way or waiting in one process, at most."""
_FIRST_MS = (50, 250)
"""Range of the delay of the first verification, for a route on probation."""
_LATER = (0.4, 0.9)
"""Range of the delay of the second verification, as a share of the entry's bounded lifetime."""
_MOST_TRIALS = 8
"""Quarantined routes on trial at a time, at most, so that room for other verifications remains."""
_LONGEST_RUN_S = 30.0
_LOOK_AGAIN_S = 0.02
_STILL_LIVE_S = 0.25
_DOUBTED = 2
"""Lifetimes of probation for which a key is not stored after a run that read less than an earlier run."""
_MOST_HEADER_BYTES = 8_192


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeatable:
    """A repeatable request: its handler's scope, copied before the handler ran.

    surroundings: context variables from the middlewares around this one.
    """

    scope: Scope
    surroundings: contextvars.Context = field(default_factory=contextvars.copy_context)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """An entry that can be verified.

    plan: of its request.
    fresh_until_ms: the end of its lifetime; a later answer may differ.
    read_at: the newest version that it was read at.
    """

    request: Repeatable
    plan: Plan
    key: str
    registrations: tuple[str, ...]
    fresh_until_ms: int
    fingerprint: Fingerprint
    read_at: Version = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """An answer that was made for comparison only.

    headers: as they would be stored.
    outcome: the reads of its handler.
    started_ms, ended_ms: when its handler ran.
    """

    fingerprint: Fingerprint
    headers: RawHeaders
    outcome: Outcome
    started_ms: int
    ended_ms: int

    @property
    def wrote(self) -> bool:
        """Whether its handler wrote, during the answer or after it."""
        return _wrote(self.outcome)

    @property
    def reads(self) -> Sequence[CapturedRead]:
        """Reads of its handler."""
        return self.outcome.reads


class Verifications:
    """The verifications of one middleware. No request owns them; stop() ends all."""

    def __init__(self, app: App, read_path: ReadPath, quarantines: Quarantines) -> None:
        self._app = app
        self._read_path = read_path
        self._probation = read_path.probation
        self._samples = read_path.lookup.samples
        self._quarantines = quarantines
        self._on = read_path.process.settings.verification.enabled and read_path.process.settings.grid.enabled
        self._trials = 0
        self._under_way = read_path.process.supervisor.errands("verifications")

    def repeatable(self, plan: Plan, given: Scope, surroundings: contextvars.Context) -> Repeatable | None:
        """Return the request in repeatable form if its answer is to be verified; None: no verification, or a personal answer.

        given: its scope as it was before the handler ran.
        surroundings: see Repeatable.
        """
        if not self._on or given["method"] != "GET" or plan.policy.personal:
            return None
        if not (self._probation.on_probation(plan.probation) or self._samples.wanted(self._read_path.clock())):
            return None  # the usual case
        # The whole is stored, whatever conditions the handler saw.
        headers = [(name, value) for name, value in given["headers"] if name not in CONDITIONS]
        if sum(map(len, chain.from_iterable(headers))) > _MOST_HEADER_BYTES:
            return None
        if inspect(headers).personal or somebody(given):
            return None
        return Repeatable(scope=asked_alone({**given, "headers": headers}), surroundings=surroundings)

    def doubt(self, plan: Plan) -> None:
        """Verify a route more closely for a while: one of its runs read less than an earlier run for the same request."""
        if self._on:
            self._probation.doubt(plan.probation, now_ms=self._read_path.clock())

    def lives_at_most_ms(self, plan: Plan) -> int | None:
        """Return the longest lifetime of an answer that will be verified; None: no special bound."""
        return self._probation.ttl_ms if self._probation.on_probation(plan.probation) else None

    def stored(self, request: Repeatable, plan: Plan, response: CachedResponse, reads: Sequence[CapturedRead]) -> None:
        """Note that the answer to this request has become an entry. On probation it is verified soon; otherwise it may be, if it
        is used often. Answers without registrations, or with reads from a secondary, are never verified."""
        if not reads or not response.registrations or not all(read.primary for read in reads):
            return
        on_probation = self._probation.on_probation(plan.probation)
        if on_probation and (len(self._under_way) >= MOST_UNDER_WAY or not self._probation.begin(plan.probation)):
            return
        sample = Sample(
            request=request,
            plan=plan,
            key=response.key,
            registrations=response.registrations,
            fresh_until_ms=response.fresh_until_ms,
            fingerprint=fingerprint(response.status, response.headers, response.body, reads),
            read_at=max(read.read_at for read in reads),
        )
        if on_probation:
            lifetime_ms = response.fresh_until_ms - response.stored_at_ms
            self._start(self._on_probation(sample, lifetime_ms=lifetime_ms))
        else:
            self._samples.keep(sample.registrations, partial(self._begin, sample))

    async def stop(self) -> None:
        """End the verifications under way."""
        await self._under_way.aclose()

    def _begin(self, sample: Sample) -> None:
        if len(self._under_way) < MOST_UNDER_WAY:
            self._start(self._once(sample))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._under_way.start(work, context=contextvars.Context())

    async def _once(self, sample: Sample) -> None:
        if await self._verify(sample) is not Finding.SAME:
            self._samples.drop(sample.registrations)

    async def _on_probation(self, sample: Sample, *, lifetime_ms: int) -> None:
        """Verify an answer after a moment, and once more before it ends."""
        try:
            first_s = min(random.uniform(*_FIRST_MS), lifetime_ms / 2) / 1000
            await asyncio.sleep(first_s)
            if await self._verify(sample) is not Finding.DIVERGED:
                later_s = random.uniform(*_LATER) * min(lifetime_ms, self._probation.ttl_ms) / 1000
                if await self._lasts(sample, later_s - first_s):
                    await self._verify(sample)
        finally:
            self._probation.end(sample.plan.probation)

    async def _lasts(self, sample: Sample, seconds: float) -> bool:
        """Wait that long, or until the entry is dead; then the room is free for others."""
        until_s = asyncio.get_running_loop().time() + seconds
        while (left_s := until_s - asyncio.get_running_loop().time()) > 0:
            if not self._live(sample):
                return False
            await asyncio.sleep(min(left_s, _STILL_LIVE_S))
        return True

    async def _verify(self, sample: Sample) -> Finding:
        """Verify once. Never raises an Exception: a fault of the cache must not end all other verifications."""
        read_path = self._read_path
        try:
            finding, differs, again = await self.compared(sample)
        except Exception as error:
            read_path.process.telemetry.failure("read-path", "verification.failed", error, kind=type(error).__name__)
            finding, differs, again = Finding.FAILED, (), None
        more = again is not None and reads_more(sample.fingerprint, again.fingerprint)
        judged = self._probation.judge(sample.plan.probation, finding, differs, more=more)
        read_path.process.telemetry.verification.verifications.labels(judged.value).inc()
        if judged is Finding.DIVERGED and again is not None:
            answers = (sample.fingerprint, again.fingerprint)
            await self._quarantines.diverged(sample.plan, sample.key, sample.registrations[0], differs, answers)
            if self._trials < _MOST_TRIALS:
                self._start(self._on_trial(sample, again.fingerprint))
        elif (
            finding is Finding.DIVERGED
            or differs == (HIDDEN_INPUT,)
            or (again and chosen_otherwise(sample.fingerprint, again.fingerprint))
        ):
            if finding is Finding.DIVERGED:
                until_ms = read_path.clock() + _DOUBTED * self._probation.ttl_ms
                read_path.admission.earlier.missing_reads.doubt(sample.key, until_ms=until_ms)
            await self._quarantines.forget([sample.registrations[0]], [sample.key])
        return judged

    async def _on_trial(self, sample: Sample, latest: Fingerprint) -> None:
        """End a quarantine early if later runs of the handler agree. None of their answers is served or stored."""
        self._trials += 1
        try:
            await self._tried(sample, Trial(sample.fingerprint, latest))
        finally:
            self._trials -= 1

    async def _tried(self, sample: Sample, trial: Trial) -> None:
        probation, plan = self._probation, sample.plan
        pause_s = probation.quarantine_ms * TRIAL_SHARE / 1000
        while probation.barred(plan.route) == DIVERGED and probation.may_shorten(plan.route):
            await asyncio.sleep(pause_s)
            again = await self.answer(sample.request, on_write=self._quarantines.on_write(plan))
            match trial.judge(None if again is None or again.wrote else again.fingerprint):
                case True:
                    return self._quarantines.release_early(plan)
                case False:
                    return None
        return None

    async def compared(self, sample: Sample) -> tuple[Finding, tuple[str, ...], Answered | None]:
        """Run a sample's handler again. Returns the finding, the parts that differ, and the answer if there was one."""
        if not self._live(sample):
            return Finding.EXCUSED, (), None
        renewals = self._read_path.usability.renewals(sample.registrations)
        again = await self.answer(sample.request, on_write=self._quarantines.on_write(sample.plan))
        if again is None or again.fingerprint.status >= 500:
            return Finding.FAILED, (), again
        differs = differences(sample.fingerprint, again.fingerprint)
        if again.wrote:
            return Finding.EXCUSED, differs, again
        hidden_inputs = self._read_path.admission.earlier.hidden_inputs
        judged = hidden_inputs.judge(
            sample.key, sample.plan.route, again.outcome.run, started_ms=again.started_ms, ended_ms=again.ended_ms
        )
        if not differs:
            return Finding.SAME, (), again
        chosen = chosen_otherwise(sample.fingerprint, again.fingerprint)
        over = self._read_path.clock() >= sample.fresh_until_ms
        if chosen or over or not all(read.primary for read in again.reads):
            return Finding.EXCUSED, differs, again
        newest = max((read.read_at for read in again.reads), default=0)
        if newest < sample.read_at:
            return Finding.EXCUSED, differs, again  # the database was restored to an earlier time
        # A view's definition may have changed: that ends the entry, and is no fault of its handler.
        await self._read_path.look_up_definitions()
        proved = await self._proved_live(sample, newest)
        # An entry that was renewed meanwhile may have had another result in between.
        proved = proved and self._read_path.usability.renewals(sample.registrations) == renewals
        if "queries" in differs and hidden_inputs.explain(sample.plan.route, judged, proved=proved):
            return Finding.EXCUSED, (HIDDEN_INPUT,), again
        return (Finding.DIVERGED if proved else Finding.EXCUSED), differs, again

    def _live(self, sample: Sample) -> bool:
        """Whether the entry still holds the sampled answer, and its registrations live, as far as this process knows."""
        resident = self._read_path.store.resident(sample.key)
        replaced = resident is not None and resident.response.registrations != sample.registrations
        return not replaced and self._read_path.usability.live(sample.registrations)

    async def _proved_live(self, sample: Sample, newest: int) -> bool:
        """Whether no write had touched the entry by the time of the comparison. This is known once every cell that guards it is
        past the comparison, in the database's time and in ours. False if uncertain.

        newest: the version that the comparing answer was read at.
        """
        read_path, settings = self._read_path, self._read_path.process.settings
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + 1 + 2 * settings.grid.staleness_bound_ms / 1000
        proof_ms: int | None = None
        while self._live(sample) and loop.time() < give_up_s:
            if proof_ms is None and read_path.watermark() >= newest:
                proof_ms = (
                    read_path.clock() + settings.grid.heartbeat_ms
                )  # a margin, because clocks may differ by milliseconds
            if proof_ms is not None and read_path.usability.live_as_of(sample.registrations, proof_ms):
                return True
            await asyncio.sleep(_LOOK_AGAIN_S)
        return False

    async def answer(self, request: Repeatable, *, on_write: Callable[[], None] | None = None) -> Answered | None:
        """Return the handler's answer at this moment. None: it raised, took too long, or gave no answer that could be stored.

        on_write: called at the first write of the handler, also after its answer.
        """
        work, surroundings = self._run(request, on_write), request.surroundings.copy()
        return await asyncio.create_task(work, name="quaestor-verification", context=surroundings)

    async def _run(self, request: Repeatable, on_write: Callable[[], None] | None) -> Answered | None:
        read_path = self._read_path
        started_ms = ended_ms = read_path.clock()
        status, headers, body = 0, [], bytearray()
        outcome: Outcome | None = None

        async def send(message: Message) -> None:
            nonlocal status, headers, outcome, ended_ms
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [(bytes(name), bytes(value)) for name, value in message.get("headers", ())]
            elif message["type"] == "http.response.body" and outcome is None:
                body.extend(message.get("body", b""))
                if len(body) > read_path.process.settings.store.max_body_bytes:
                    raise ValueError("an answer that is too large to be stored")
                if not message.get("more_body", False):
                    ended_ms = read_path.clock()
                    outcome = recorder.outcome(ended_ms)
                    recorder.close()

        try:
            async with asyncio.timeout(_LONGEST_RUN_S):
                window_ms = read_path.process.settings.lifetimes.clock_window_ms
                with recording(clock_window_ms=window_ms, clock=read_path.clock) as recorder:
                    recorder.writes.on_attempt = on_write
                    await self._app(asked_alone(request.scope), only_request(), send)
        except Exception:  # the handler's; the next request for it will raise it again
            return None
        stored = storable(headers, bytes(body), status=status)
        if outcome is None or stored is None or _failed(outcome):
            return None
        if recorder.writes.attempted and not _wrote(outcome):
            reason = Reason(Uncacheable.WROTE, "a write after the answer")
            outcome = replace(outcome, reasons=(*outcome.reasons, reason))
        compared = fingerprint(status, stored, bytes(body), outcome.reads)
        return Answered(fingerprint=compared, headers=stored, outcome=outcome, started_ms=started_ms, ended_ms=ended_ms)


def _wrote(outcome: Outcome) -> bool:
    return any(reason.reason is Uncacheable.WROTE for reason in outcome.reasons)


def _failed(outcome: Outcome) -> bool:
    return any(reason.reason is Uncacheable.READ_FAILED for reason in outcome.reasons)
