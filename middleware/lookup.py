"""The look-up, first part of an exchange: send a stored answer, wait for another request's handler, bypass, or hand over
to the handler run."""

from __future__ import annotations

import time
from dataclasses import replace

from quaestor.middleware.bypass import pass_by, pass_head_by
from quaestor.middleware.context import ExchangeContext
from quaestor.middleware.handovers import Looked, Missed, Renewal
from quaestor.middleware.headers import hit
from quaestor.middleware.interface import Receive
from quaestor.middleware.partial_answers import begun, holds_part, part_wanted
from quaestor.middleware.sending import refuse, send_entry
from quaestor.middleware.stale_entry import StaleEntry
from quaestor.read_path import shared_cache_rules
from quaestor.read_path.coalescing import Flight, Landing
from quaestor.read_path.decision import Event
from quaestor.read_path.partial_answers import key_of_parts
from quaestor.read_path.reuse import Use
from quaestor.store.memory import Resident

FOLLOW_DEADLINE_S = 10.0
"""How long a request waits for another request's handler before it runs its own."""
_ROUNDS = 3
"""How often a request waits for others before it runs its own handler."""
_LOOKS = 8
"""How often an entry may die between look-up and sending; after that the request bypasses the cache."""


class Lookup:
    """The look-ups of one request. Further ones follow if an entry dies, a leader leaves, or a handler's 304 misleads.

    layer: the last entry's store: "memory" or "redis".
    waited: how often the request waited for another request or process.
    """

    def __init__(self, context: ExchangeContext) -> None:
        self.layer = "memory"
        self.waited = 0
        self._context = context
        self._read_path = context.parts.read_path
        self._key = context.target.key
        self._flight: Flight | None = None
        self._awaited: Flight | None = None
        self._waited_for = "process"
        self._looks = 0
        self._known = False
        # Whether this request may run the handler for others as well.
        self._leads = context.storable and not context.credentials
        self._waited_for_verdict = False
        self._misleading = False
        self._begun_s = time.perf_counter()

    async def look(self) -> Looked:
        """Look the request up until an entry was sent, or another part of the exchange has to act."""
        while True:
            context = self._context
            key = self._read_path.variants.key(context.target.key, context.scope["headers"])
            if key is None:
                return await self._pass_by("vary")
            self._looks += 1
            if self._looks > _LOOKS:
                return await self._pass_by("unsettled")
            self._key = key
            now_ms = self._read_path.clock()
            lookup = self._read_path.lookup
            resident = lookup.servable(key, now_ms) or self._handed_over(key)
            self._known = resident is not None or lookup.knows(key)
            if resident is None and self._known:
                resident = lookup.valid(key, now_ms)
            use = self._use(resident)
            if use is Use.VALIDATE:
                if self._busy(now_ms):
                    return Looked(event=Event.BUSY)
                if self._known and self._leads and not self._waited_for_verdict and await lookup.settled(key):
                    self._waited_for_verdict = True
                    continue
                resident = await self._look_further(resident, now_ms)
                use = self._use(resident)
            if resident is None or use is Use.VALIDATE:
                return await self._absent(resident)
            looked = await self._present(resident, use)
            if looked is not None:
                return looked

    def look_again(self, receive: Receive) -> None:
        """Look again after a handler's 304 about another answer than the stored one. The stored one may still be in the shared
        store, but the handler now returns the whole.

        receive: replays the request's body.
        """
        self._context = replace(self._context, receive=receive)
        self._misleading = True

    def land(self, how: Landing, entry: Resident | None = None) -> None:
        """End the flight that this request leads, if any."""
        if self._flight is not None:
            self._flight.land(how, entry)

    def _busy(self, now_ms: int) -> bool:
        coalescing = self._read_path.coalescing
        return (
            self._leads
            and self.waited < _ROUNDS
            and not coalescing.uncoalesced(self._key, now_ms=now_ms)
            and coalescing.under_way(self._key) is not None
        )

    async def _look_further(self, resident: Resident | None, now_ms: int) -> Resident | None:
        """Look into the shared store. If the request may run the handler for others, lead a flight from here on."""
        coalescing = self._read_path.coalescing
        if not self._leads:
            if resident is None:
                resident = await self._read_path.lookup.fetch(self._key)
                self.layer = self._outer_layer()
            return resident
        if coalescing.uncoalesced(self._key, now_ms=now_ms):
            return resident
        flight = self._flight = coalescing.lead(self._key)
        begun_s = time.perf_counter()
        resident = await self._read_path.lookup.fetch(self._key, flight, self._context.plan.policy)
        if coalescing.leases is not None:
            self.layer = "redis"
            if resident is not None:
                self._read_path.admission.doorkeeper.note_use(self._context.plan.probation)
        if flight.waited:
            self.waited += 1
            self._waited_for = "workers"
            self._read_path.process.telemetry.requests.wait_s.labels("workers").observe(time.perf_counter() - begun_s)
        return resident

    def _handed_over(self, key: str) -> Resident | None:
        """Return the entry of the flight that was awaited: memory may have had no room for it."""
        flight, self._awaited = self._awaited, None
        entry = None if flight is None else flight.entry
        return None if entry is None or entry.response.key != key else self._read_path.lookup.handed_over(entry)

    def _outer_layer(self) -> str:
        return "redis" if self._read_path.coalescing.leases is not None else "memory"

    async def _present(self, resident: Resident, use: Use) -> Looked | None:
        """Send an entry that may be used. None: it died before it could be sent."""
        if not self._context.credentials or shared_cache_rules.shared(
            resident.response.headers,
            authorization_only=self._context.facts.authorization_only,
            unlisted=self._context.facts.unlisted,
        ):
            return await self._serve(resident, use)
        return await self._pass_by("credentials")

    async def _absent(self, resident: Resident | None) -> Looked:
        """Choose the next part of the exchange: no entry may be sent without the handler."""
        context = self._context
        if part_wanted(context):
            return await self._part()
        if context.facts.only_if_cached:
            return await self._refuse()
        if not context.storable:
            if resident is not None and context.is_head and shared_cache_rules.is_explicit(resident.response):
                return await self._pass_head_by(resident)
            how = self._missed(None).forwarded(confirmed=False) if context.is_head else b"fwd=bypass"
            return await self._pass_by("partial" if context.facts.partial else "request", how=how)
        unasked = resident is None or context.credentials or self._misleading
        stale = None if resident is None or unasked else StaleEntry(context=context, resident=resident)
        if stale is None and not self._misleading:
            stale = begun(context, self._key)
        return Looked(event=Event.ABSENT, missed=self._missed(stale))

    async def _part(self) -> Looked:
        """Send the part from a partial entry, or hand over to the handler run."""
        context, missed = self._context, self._missed(None)
        key = key_of_parts(self._key)
        resident = await self._read_path.lookup.fetch(key)
        if (
            resident is not None
            and holds_part(context, resident)
            and await send_entry(context, resident, layer=self.layer)
        ):
            self._read_path.process.telemetry.requests.served(self.layer)
            context.plan.traffic.hits += 1
            return Looked(event=Event.FOUND)
        if context.facts.only_if_cached:
            return await self._refuse()
        return Looked(event=Event.ABSENT, missed=replace(missed, key=key, part=True))

    def _missed(self, stale: StaleEntry | None) -> Missed:
        return Missed(
            key=self._key,
            flight=self._flight,
            stale=stale,
            why=self._why_missing(stale),
            layer=self.layer,
            begun_s=self._begun_s,
            varied=stale is None and self._key != self._context.target.key and self._varied(),
        )

    def _varied(self) -> bool:
        """Whether entries of this URL exist under other keys, but none for the fields of this request."""
        return self._read_path.process.telemetry.stores.removals.why(self._key) == "absent"

    def _why_missing(self, stale: StaleEntry | None) -> str:
        if stale is None:
            lagging = self._known and self._read_path.lookup.lagging(self._key, self._read_path.clock())
            return "lagging" if lagging else self._read_path.process.telemetry.stores.removals.why(self._key)
        return "expired" if self._read_path.clock() >= stale.response.fresh_until_ms else "request"

    def _use(self, resident: Resident | None) -> Use:
        """Judge whether an entry may be used. An entry found after waiting for a handler counts as new, whatever the request
        demands."""
        if resident is None:
            return Use.VALIDATE
        directives = {} if self.waited else self._context.facts.directives
        use = self._read_path.usability.use(resident.response, self._context.plan.policy, directives)
        return Use.VALIDATE if use is Use.STALE_WHILE_REVALIDATE and not self._context.repeatable else use

    async def wait(self) -> Looked:
        """Wait for the request whose handler runs for the same key."""
        flight = self._read_path.coalescing.under_way(self._key)
        begun_s = time.perf_counter()
        landing = Landing.LEFT if flight is None else await flight.landing(deadline_s=FOLLOW_DEADLINE_S)
        self._awaited = flight
        self.waited += 1
        self._read_path.process.telemetry.requests.wait_s.labels("process").observe(time.perf_counter() - begun_s)
        match landing:
            case Landing.STORED:
                return Looked(event=Event.LEADER_STORED)
            case Landing.LEFT:
                return Looked(event=Event.LEADER_LEFT)
            case Landing.REFUSED:
                return Looked(event=Event.LEADER_REFUSED, missed=self._missed(None))

    async def _serve(self, resident: Resident, use: Use) -> Looked | None:
        """Answer from an entry that was live a moment ago. None: it has died since."""
        how = self._how(resident, use)
        fresh = use is Use.FRESH
        # First of all, so that no waiting request, nor this one if it looks again, waits for a client to read.
        if fresh:
            self.land(Landing.STORED, resident)
        else:
            self.land(Landing.LEFT)
        if not await send_entry(self._context, resident, how=how, stale=not fresh, layer=self.layer):
            return None
        requests = self._read_path.process.telemetry.requests
        if self.waited:
            requests.followed(self._waited_for)
            self._context.plan.traffic.misses += 1
        else:
            requests.served(self.layer if fresh else "stale")
            self._context.plan.traffic.hits += 1
        if not fresh:
            requests.stale_served.labels("accepted" if use is Use.STALE else "revalidating").inc()
        return Looked(event=Event.FOUND, renewal=self._renewal(resident, use))

    def _how(self, resident: Resident, use: Use) -> bytes | None:
        """Return the parameters of Cache-Status; None for a plain hit."""
        left_ms = resident.response.fresh_until_ms - self._read_path.clock()
        if use is not Use.FRESH:
            return hit(resident.response, left_ms // 1000)
        if self.waited:
            return b"fwd=uri-miss; collapsed"
        if self.layer != "memory" and self._read_path.process.settings.observability.debug_header:
            return hit(resident.response, max(0, left_ms) // 1000)
        return None

    def _renewal(self, resident: Resident, use: Use) -> Renewal | None:
        if use is Use.STALE_WHILE_REVALIDATE:
            return Renewal(key=self._key)
        due = use is Use.FRESH and self._read_path.lookup.early.due(resident, self._read_path.clock())
        return Renewal(key=self._key, early=resident.response) if due and self._context.repeatable else None

    async def _refuse(self) -> Looked:
        """Answer `only-if-cached` with 504."""
        self.land(Landing.LEFT)
        await refuse(self._context.send)
        return Looked(event=Event.FORBIDDEN)

    async def _pass_by(self, reason: str, *, how: bytes = b"fwd=bypass") -> Looked:
        """Bypass the cache. how: the parameters of Cache-Status."""
        context = self._context
        if context.facts.only_if_cached:
            return await self._refuse()
        self.land(Landing.LEFT)
        if context.reading is not None:
            context.reading.withheld((reason,))
        context.plan.traffic.passed_by(reason)
        await pass_by(
            context.parts.app,
            context.parts.read_path,
            context.parts.outgoing,
            context.scope,
            context.receive,
            context.send,
            reason=reason,
            how=how,
        )
        return Looked(event=Event.PASSED_BY)

    async def _pass_head_by(self, resident: Resident) -> Looked:
        self._context.plan.traffic.passed_by("request")
        await pass_head_by(self._context, resident)
        return Looked(event=Event.PASSED_BY)
