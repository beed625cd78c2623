"""Admission: make an entry of a handler's answer, guarded by registrations or by its own lifetime.

Admission never fails a request. After any fault the caller receives a Verdict with the reason why the answer must not be kept,
and one failure is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from quaestor.cache_sketch.fill import LifetimeFactors
from quaestor.cache_sketch.partitions import Partitioning
from quaestor.capture import Outcome
from quaestor.errors import DependencyError, NotCacheableError, RegistrationRefusedError, StoreError
from quaestor.model import CapturedRead, Reason, Uncacheable, Version
from quaestor.observability.hooks import AnswerKept
from quaestor.policy import RoutePolicy
from quaestor.ports import LifetimeEstimator, QueryRegistry, Registered
from quaestor.read_path import (
    asked_fields,
    explaining,
    freshness,
    partial_answers,
    reuse,
    shared_cache_rules,
)
from quaestor.read_path.answer_keys import AnswerKeys
from quaestor.read_path.answered import AnsweredRequest, ObservedRun
from quaestor.read_path.decision import Event
from quaestor.read_path.declared_dependencies import declared_reads, waived
from quaestor.read_path.doorkeeper import Doorkeeper
from quaestor.read_path.earlier_runs import EarlierRuns
from quaestor.read_path.entries import (
    COPY_SLACK_MS,
    Answer,
    EntryBounds,
    Verdict,
    guarded_entry,
    in_groups,
    kept_until_ms,
)
from quaestor.read_path.entry_announcement import EntryAnnouncement
from quaestor.read_path.explicit_entries import ExplicitEntries
from quaestor.runtime.supervision.process_context import ProcessContext
from quaestor.store.memory import Resident, first_copies_until_ms
from quaestor.ttl.query_classes import kind_of_result

_UNKNOWN = frozenset({Uncacheable.NO_READS, Uncacheable.UNCAPTURED})
"""Reasons that leave the decision to the origin's fields: the shown records are unknown."""


class EntryAdmission:
    """Makes entries of answers; one per read path. Use from one event loop at a time.

    announcement: reports entries to index and sketch.
    publication: stores entries after their handler has ended.
    doorkeeper: decides which first answers are not stored.
    earlier: memory of earlier runs.
    factors: of the lifetimes of copies, by sketch partition.
    """

    def __init__(
        self,
        registry: QueryRegistry,
        estimator: LifetimeEstimator,
        process: ProcessContext,
        *,
        keys: AnswerKeys,
        announcement: EntryAnnouncement,
        explicit: ExplicitEntries,
        earlier: EarlierRuns,
        partitioning: Partitioning,
    ) -> None:
        self.clock = process.clock
        self.announcement = announcement
        self.publication = announcement.publication
        self.earlier = earlier
        self.doorkeeper = Doorkeeper(most_share=process.settings.store.doorkeeper_share)
        self.factors = LifetimeFactors()
        self._registry = registry
        self._estimator = estimator
        self._keys = keys
        self._explicit = explicit
        self._settings = process.settings
        self._telemetry = process.telemetry
        self._partitioning = partitioning

    async def admit(
        self, answer: Answer, request: AnsweredRequest, run: ObservedRun, *, at_most_ms: int | None = None
    ) -> Verdict:
        """Make an entry of an answer: register its reads, and add it to index and sketch. `publication` has to follow on KEPT:
        a guarded entry is stored when its handler has ended, because the handler may write after its answer.

        Takes one activation and, with Redis, one more round trip.

        at_most_ms: the longest lifetime of an entry whose route is on probation; None: its route has passed.
        """
        policy, outcome = request.policy, run.outcome
        answer = in_groups(answer, policy.groups)
        ignored = self._keys.ignored
        barred = asked_fields.refusal(run.asked, policy, ignored, request_headers=request.headers)
        # Without a grid no entry is guarded, so a declaration cannot override a reason either.
        reasons = [
            reason for reason in outcome.reasons if not (self._settings.grid.enabled and waived(policy, reason.reason))
        ]
        why = {reason.reason for reason in reasons}
        explicit = self._settings.lifetimes.explicit and Uncacheable.NO_READS in why and why <= _UNKNOWN
        deciding = asked_fields.deciding(
            run.asked, policy, answer.headers, ignored=ignored, with_body=request.with_body, of_origin=explicit
        )
        if explicit:
            return await self._admit_explicit(answer, request, asked_ms=run.asked_ms, barred=barred, deciding=deciding)
        refused = self._refused(answer, reasons, policy, credentials=request.credentials)
        if refused is None and barred is not None:
            refused = Verdict(event=Event.UNGUARDED, reasons=barred[:1], detail=barred[1])
        if refused is not None:
            return refused
        if answer.part is not None and not partial_answers.tagged(answer.headers):
            return Verdict(
                event=Event.UNGUARDED, reasons=("partial",)
            )  # an entity tag computed here would describe the part, not the whole
        key, answer = self._keys.of(answer, request, deciding)
        if key is None or self.publication.backs_off(key):
            return Verdict(event=Event.UNGUARDED, reasons=("vary" if key is None else "failed",))
        valid_until_ms = self.earlier.valid_until_ms(key, request.route, run, now_ms=self.clock())
        if isinstance(valid_until_ms, Verdict):
            return valid_until_ms
        window_ms = min(reuse.windows(answer.headers, policy).longest_ms, self._settings.lifetimes.ttl_max_ms)
        registered = await self._register(self._reads(request, run), since=run.since, window_ms=window_ms)
        if isinstance(registered, Verdict):
            return registered
        now_ms = self.clock()
        if (missing := self.earlier.missing(key, registered, now_ms=now_ms)) is not None:
            self._registry.lease(registered.ids, until_ms=0)
            return missing
        ttl_ms = (
            self._settings.lifetimes.ttl_max_ms
            if policy.ttl_ms is None
            else min(policy.ttl_ms, self._settings.lifetimes.ttl_max_ms)
        )
        namespaces = (query.namespace for query in registered.queries)
        partition = self._partitioning.token(namespaces, group=policy.sketch_partition)
        kind = self._kind(registered)
        estimated_ms = self._estimated_ms(registered, kind, now_ms) if request.leave else None
        response = guarded_entry(
            answer, registered,
            EntryBounds(
                ttl_ms=ttl_ms, window_ms=window_ms, at_most_ms=at_most_ms, valid_until_ms=valid_until_ms,
                copies_ms=None if estimated_ms is None else max(1, int(estimated_ms * self.factors.of(partition))),
            ),
            key=key, resource=request.target.resource, partition=partition,
            now_ms=now_ms, cost_ms=now_ms - run.asked_ms,
        )  # fmt: skip
        if response is None:
            self._registry.lease(registered.ids, until_ms=0)
            return Verdict(event=Event.UNGUARDED, reasons=("lifetime",))
        if answer.part is not None:
            response = self.publication.with_other_parts(response, answer.part)
        until_ms = kept_until_ms(response) + 2 * COPY_SLACK_MS
        self._registry.lease(registered.ids, until_ms=until_ms, cost_ms=response.cost_ms)
        with self._telemetry.tracing.span("quaestor.index"):
            verdict = await self.announcement.announce(response, request.target.url, leave=request.leave)
        if verdict.resident is not None:
            self._note_kept(verdict.resident, outcome, registered, kind, estimated_ms)
        return verdict

    def _refused(
        self, answer: Answer, reasons: Sequence[Reason], policy: RoutePolicy, *, credentials: bool
    ) -> Verdict | None:
        """Return why an answer cannot become a guarded entry, as far as it is known before registration."""
        if self._settings.lifetimes.explicit:
            refused = freshness.refusal(answer.status, answer.headers, personal=policy.personal)
            refused = "credentials" if credentials else refused
            if refused is not None:
                return Verdict(event=Event.UNGUARDED, reasons=(refused,))
        if not reasons:
            return None
        return Verdict(
            event=Event.UNGUARDED,
            reasons=tuple(dict.fromkeys(reason.reason.value for reason in reasons)),
            detail="; ".join(reason.detail for reason in reasons),
        )

    def _reads(self, request: AnsweredRequest, run: ObservedRun) -> tuple[CapturedRead, ...]:
        """Return everything that an answer depends on: its handler's reads, and its route's declared ones."""
        settings = self._settings
        return run.outcome.reads + declared_reads(
            request.policy,
            request.target,
            deployment=settings.scope,
            namespace=settings.store.control_namespace,
            since=run.since,
        )

    async def _register(self, reads: Sequence[CapturedRead], *, since: Version, window_ms: int) -> Registered | Verdict:
        """Activate the reads of an answer; or return why it cannot be guarded."""
        expires_at_ms = self.clock() + self._settings.lifetimes.ttl_max_ms + window_ms + 2 * COPY_SLACK_MS
        try:
            with self._telemetry.tracing.span("quaestor.activation", reads=len(reads)):
                return await self._registry.register(reads, since=since, expires_at_ms=expires_at_ms)
        except NotCacheableError as error:
            return Verdict(event=Event.UNGUARDED, reasons=error.reasons, detail=str(error))
        except RegistrationRefusedError as error:
            return Verdict(event=Event.UNGUARDED, reasons=(error.reason,), detail=str(error))
        except DependencyError as error:
            self._telemetry.failure("event-layer", "read_path.register_failed", error)
            return Verdict(event=Event.UNGUARDED, reasons=("failed",), detail=str(error))

    def _note_kept(
        self, resident: Resident, outcome: Outcome, registered: Registered, kind: str, estimated_ms: int | None
    ) -> None:
        response = resident.response
        self._telemetry.stores.kept(response)
        self.earlier.note(response.key, outcome, registered)
        if self._settings.observability.debug_header:
            resident.explain = explaining.depends(outcome.reads, registered)
        now_ms = response.stored_at_ms
        # A lifetime that something else has shortened does not measure the estimate.
        as_estimated = estimated_ms is not None and first_copies_until_ms(response) - now_ms == estimated_ms
        self._estimator.observe_read(
            registered.query_ids, now_ms=now_ms, ttl_ms=response.fresh_until_ms - now_ms,
            given_ms=estimated_ms if as_estimated else None, write_rate_hz=registered.write_rate_hz, kind=kind,
        )  # fmt: skip
        if self._telemetry.hooks.kept:
            kept = AnswerKept(
                key=response.key, query_ids=registered.query_ids, kind=kind,
                write_rate_hz=registered.write_rate_hz, given_ms=estimated_ms, cost_ms=response.cost_ms,
                depends=partial(explaining.depends, () if registered.queries else outcome.reads, registered),
            )  # fmt: skip
            self._telemetry.hooks.kept.tell(kept)

    def _estimated_ms(self, registered: Registered, kind: str, now_ms: int) -> int:
        """Return how long copies outside will probably stay valid: no write can reach them."""
        return self._estimator.estimate_ms(
            registered.query_ids, write_rate_hz=registered.write_rate_hz, now_ms=now_ms, kind=kind
        )

    def _kind(self, registered: Registered) -> str:
        """Return the kind by which the estimator learns: collections and classes of the result's queries."""
        return kind_of_result(registered.queries, ignored=self._settings.store.control_namespace)

    async def _admit_explicit(
        self,
        answer: Answer,
        request: AnsweredRequest,
        *,
        asked_ms: int,
        barred: tuple[str, str] | None,
        deciding: tuple[bytes, ...],
    ) -> Verdict:
        """Admit an answer without reads: its own fields decide (RFC 9111)."""
        refused = shared_cache_rules.refusal(
            answer.status,
            answer.headers,
            credentials=request.credentials,
            now_s=self.clock() / 1000,
            authorization_only=request.authorization_only,
            unlisted=request.unlisted,
            heuristic=self._settings.lifetimes.heuristic_fraction,
        )
        if refused is None and barred is not None:
            refused = barred[0]
        key: str | None = None
        if refused is None:
            key, answer = self._keys.of(answer, request, deciding)
        if key is None:
            return Verdict(event=Event.UNGUARDED, reasons=(refused or "vary", Uncacheable.NO_READS.value))
        try:
            resident = await self._explicit.keep(
                answer, key=key, resource=request.target.resource, asked_ms=asked_ms, policy=request.policy
            )  # fmt: skip
        except StoreError as error:
            self._telemetry.failure("store", "read_path.store_failed", error)
            reasons = ("failed", Uncacheable.NO_READS.value)
            return Verdict(event=Event.PART_FAILED, reasons=reasons, detail=str(error))
        if resident is None:
            reasons = ("died", Uncacheable.NO_READS.value)
            return Verdict(event=Event.DIED, reasons=reasons, detail="outdated while it was being fetched")
        return Verdict(event=Event.KEPT, resident=resident)
