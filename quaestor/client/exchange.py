"""The rules of use: a client's treatment of one request and its answer. No I/O and no clock.

A copy is used under three conditions: its lifetime is not over, the sketch is no older than Δ, and the sketch permits it. The
sketch permits a copy that it does not name, and one that left the server, or was last checked, after the sketch was made.
Therefore a named resource is requested once, past the caches, and not again until the next sketch. If anything is missing, late
or malformed, the server
answers: nothing stale is used, and no request fails that would have succeeded without the client.

An answer of the network may come from a cache in between. The answer is accepted if it left the server within Δ, or if the sketch
permits it like a copy. Otherwise it is requested once more with `Cache-Control: no-cache`, and that answer is accepted.

All times are the server's, in ms since the epoch. One `Exchanges` may be used from several threads.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from dataclasses import replace

from quaestor.cache_sketch.wire_format import digest
from quaestor.client.copies import CREDENTIALS, Copies, Copy, Form, anonymous, confirmed, end_to_end, identity
from quaestor.client.fields import Lifetime, forbidden, lifetime, same_etag, varied_by
from quaestor.client.flights import Flight, Key
from quaestor.client.levels import Level
from quaestor.client.server_time import Moment
from quaestor.client.sketches import UNKNOWN_MS, Sketches, SketchRequest
from quaestor.client.steps import Answer, Ask, Counts, Keep
from quaestor.read_path.asked_fields import CORRELATION
from quaestor.read_path.key import resource

EARLY_MS = 100
"""How much later than its lifetime says an answer may have left the server."""
READ_MS = 1_000
"""How much newer writes an answer may include than its lifetime says: writes of another server whose clock is ahead."""
DELTA_S = 60.0
"""Δ if neither client nor server names one."""
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_OWN_RULES = frozenset({
    "range", "if-none-match", "if-modified-since", "if-match", "if-unmodified-since", "if-range", "cache-control", "pragma",
    "content-length", "transfer-encoding",
})  # fmt: skip
"""Request fields of a caller that handles caches itself, or sends a body: such a request passes unchanged."""
_PAST_CACHES = (("cache-control", "no-cache"), ("pragma", "no-cache"))
_REVALIDATED = (("cache-control", "max-age=0"),)
"""Fields for caches on the way that are never purged. Caches that are purged may answer."""
_UNMET = ("if-none-match", '"-"')
"""A condition that no answer meets. With it a request is a revalidation, which caches that are purged may answer."""
_OTHERS = 10_000
"""URLs with answers without a lifetime that are remembered."""


class Exchanges:
    """The state of a client of one server."""

    def __init__(self, level: Level, memory_bytes: int) -> None:
        self.counts = Counts()
        self.copies = Copies(memory_bytes)
        self.sketches = Sketches()
        self._level = level
        self._lock = threading.Lock()
        self._others: dict[bytes, None] = {}
        self._written_ms = 0.0
        self._read_ms = 0.0
        self._undated_write = self._undated_read = False
        self._session = 0
        self._writes = 0
        self._guarded = False
        self._wanted: list[str] = []

    def begin(self, target: bytes, request_fields: Mapping[str, str], level: Level, now: Moment) -> Ask | Answer | None:
        """Return the first step of a GET: an answer from memory, a request to send, or None: let it pass unchanged.

        request_fields: its header fields, by their names in lower case.
        """
        with self._lock:
            latest_ms = self.sketches.time.latest_ms(now)
            after_ms = self._after_ms(level, latest_ms)
            form = self.copies.form(target)
            if self._guarded:
                self._want(form.sketch if form is not None else "", level, after_ms, latest_ms, now)
            if self.sketches.off or not _OWN_RULES.isdisjoint(request_fields):
                self.counts.passed += 1
                return None
            if level.strong:
                return self._ask(target, request_fields, level, None, after_ms, past_caches=True)
            copy = self.copies.find(target, request_fields)
            if copy is not None and self._usable(copy, after_ms, latest_ms):
                self.counts.memory += 1
                return Answer(source="memory", copy=copy)
            partition = copy.life.sketch if copy is not None else form.sketch if form is not None else ""
            if self.sketches.made_ms(partition) < after_ms:
                return self._ask(target, request_fields, level, copy, after_ms, past_caches=target not in self._others)
            name, shows_ms = (copy.name, copy.shows_ms) if copy is not None else (_name(target), 0)
            unvouched = not self.sketches.vouches(partition, name, shows_ms, after_ms)
            # A named resource is checked at once, in a way that holds until the next sketch.
            return self._ask(target, request_fields, level, copy, after_ms, past_caches=unvouched, unmet=unvouched)

    def answered(
        self, ask: Ask, status: int, headers: Mapping[str, str], raw: list[tuple[bytes, bytes]], now: Moment
    ) -> Ask | Answer:
        """Return the next step after an answer: accept it, or send one more request.

        headers: its fields, with case-insensitive look-up.
        raw: the same as they came.
        """
        with self._lock:
            latest_ms = self.sketches.time.latest_ms(now)
            if status == 304 and ask.copy is None:
                if not ask.strict:
                    return self._again(ask, None)
                self._read(latest_ms)
                return Answer(source="passed")
            if status == 304 and ask.copy is not None and not same_etag(headers.get("etag"), ask.copy.etag):
                return self._again(ask, None)
            life = lifetime(headers)
            if life is not None and latest_ms and life.at_ms > latest_ms:
                # From the future: neither its end of life nor its age is known.
                life = None
            if life is not None and not self._guarded:
                # Until an answer carries a lifetime, the server may have no sketch.
                self._guarded = True
                self._want(life.sketch, ask.level, ask.after_ms, latest_ms, now)
            if life is None:
                return self._without_lifetime(ask, status, raw, latest_ms)
            return self._with_lifetime(ask, status, headers, raw, life, latest_ms)

    def keep(self, leave: Keep, raw: list[tuple[bytes, bytes]], body: bytes) -> Copy | None:
        """Keep an answer whose body is complete; None if it must not be used any more."""
        copy = Copy(
            identity=leave.identity, name=_name(leave.identity[0]), life=leave.life, etag=leave.etag,
            headers=end_to_end(raw), body=body, checked_ms=leave.checked_ms,
        )  # fmt: skip
        with self._lock:
            if self.sketches.off or (leave.life.private and leave.session != self._session):
                return None
            self.copies.keep(copy)
            return copy

    def flight(self, ask: Ask) -> tuple[Key, float] | None:
        """Return the key of requests that may share one answer, and for how long it may be joined in ms; None: it goes alone.

        Each own write and each change of the user begins new keys.
        """
        level = ask.level
        delta_ms = 1000 * self._delta_s(level)
        if level.strong or level.causal or delta_ms <= UNKNOWN_MS or ask.target in self._others:
            return None
        sent_fields = tuple(
            sorted((name, value) for name, value in ask.asked.items() if name.encode() not in CORRELATION)
        )
        return (ask.target, sent_fields, level, self._session, self._writes), delta_ms / 2

    def shared(self, ask: Ask, flight: Flight, copy: Copy, now: Moment) -> Answer | None:
        """Return the answer to a request that has waited for another's; None if it does not fit, or is not new enough."""
        with self._lock:
            latest_ms = self.sketches.time.latest_ms(now)
            key = identity(ask.target, ask.asked, tuple(name for name, _ in copy.identity[1]))
            fresh = (
                flight.ask.past_caches or copy.life.at_ms >= ask.after_ms or self._usable(copy, ask.after_ms, latest_ms)
            )
            gone = self.sketches.off or (copy.life.private and ask.session != self._session)
            older = ask.level.monotonic_reads and self.copies.older(key, copy.life.at_ms, copy.etag)
            if gone or older or not fresh or key != copy.identity:
                return None
            self.counts.memory += 1
            return Answer(source="memory", copy=copy)

    def wrote(self, now: Moment) -> None:
        """Note the end of an unsafe request, answered or not: it may have been executed."""
        with self._lock:
            self.counts.passed += 1
            self._writes += 1
            if self.sketches.time.known:
                self._written_ms = max(self._written_ms, self.sketches.time.latest_ms(now))
            else:
                self._undated_write = True

    def passed(self, now: Moment) -> None:
        """Note the answer to a request that passed: it may have shown any state."""
        with self._lock:
            self._read(self.sketches.time.latest_ms(now))

    def forget_private(self) -> None:
        """Drop all private copies, also of answers still on their way."""
        with self._lock:
            self._session += 1
            self.copies.forget_private()

    def to_load(self) -> list[str]:
        """Return partitions whose sketches have to be loaded now. The caller loads them."""
        if not self._wanted:
            return []
        with self._lock:
            wanted, self._wanted = self._wanted, []
            return wanted

    def ask_sketch(self, partition: str, *, nonce: int, now: Moment, proof: bool = False) -> SketchRequest:
        """See Sketches.ask."""
        with self._lock:
            return self.sketches.ask(partition, nonce=nonce, now=now, proof=proof)

    def sketch_answered(
        self, request: SketchRequest, status: int, headers: Mapping[str, str], body: bytes, now: Moment
    ) -> bool | None:
        """See Sketches.answered: True, None if it has to be requested again with proof, or False."""
        with self._lock:
            known, newest_ms = self.sketches.time.known, self.sketches.newest_ms
            relied = self.sketches.answered(
                request, status, headers, body, now,
                delta_ms=1000 * self._delta_s(self._level), written_ms=self._written_ms,
            )  # fmt: skip
            if relied:
                self.counts.sketches += 1
                self._guarded = True
                set_back = self.sketches.newest_ms < newest_ms
                if set_back:
                    self._undated_write = self._undated_read = True
                if set_back or not known:
                    self._date(now)
                if set_back or self.sketches.off:
                    self.copies.clear()
            elif relied is False:
                self.counts.refused += 1
            return relied

    def sketch_failed(self, partition: str, why: str, now: Moment) -> None:
        """Note a failed request for a sketch."""
        with self._lock:
            self.counts.refused += 1
            self.sketches.failed(partition, why, now)

    def _read(self, time_ms: float) -> None:
        """Note that a state as of time_ms at the latest, by the server's clock, was shown; 0 if that is unknown."""
        if time_ms:
            self._read_ms = max(self._read_ms, time_ms)
        else:
            self._undated_read = True

    def _date(self, now: Moment) -> None:
        """Date events from before the server's time was known: the latest time that they may have had."""
        latest_ms = self.sketches.time.latest_ms(now)
        if self._undated_write:
            self._written_ms = latest_ms
        if self._undated_read:
            self._read_ms = latest_ms
        self.copies.date(latest_ms)

    def _delta_s(self, level: Level) -> float:
        if level.delta_s is not None:
            return level.delta_s
        return self.sketches.delta_s if self.sketches.delta_s is not None else DELTA_S

    def _after_ms(self, level: Level, latest_ms: float) -> float:
        """Return the oldest permitted time of an answer, or of the sketch that permits it."""
        delta_ms = 1000 * self._delta_s(level)
        if not latest_ms or delta_ms <= UNKNOWN_MS or level.strong:
            return math.inf
        return max(
            latest_ms - delta_ms,
            self._written_ms if level.read_your_writes or level.causal else 0,
            self._read_ms if level.causal else 0,
        )

    def _want(self, partition: str, level: Level, after_ms: float, latest_ms: float, now: Moment) -> None:
        """Have a sketch loaded if it is too old, or soon will be: at half of Δ, so that no read has to wait."""
        if latest_ms and math.isinf(after_ms):
            return  # the server answers anyway
        soon_ms = max(after_ms, latest_ms - 500 * self._delta_s(level)) if latest_ms else 1.0
        self._wanted += self.sketches.due(partition, soon_ms, now)

    def _usable(self, copy: Copy, after_ms: float, latest_ms: float) -> bool:
        life = copy.life
        return life.at_ms <= latest_ms < life.until_ms and self.sketches.vouches(
            life.sketch, copy.name, copy.shows_ms, after_ms
        )

    def _ask(
        self,
        target: bytes,
        asked: Mapping[str, str],
        level: Level,
        copy: Copy | None,
        after_ms: float,
        *,
        past_caches: bool,
        unmet: bool = False,
    ) -> Ask:
        fields: tuple[tuple[str, str], ...] = _PAST_CACHES if past_caches else ()
        if copy is not None:
            fields = (*(fields or _REVALIDATED), ("if-none-match", copy.etag))
        elif unmet:
            fields = (*fields, _UNMET)
        # The server's clock has reached newest_ms: every answer past the caches includes all writes until then.
        checked_ms = self.sketches.newest_ms + 1 if past_caches else 0
        return Ask(
            target=target, asked=asked, level=level, fields=fields, copy=copy,
            past_caches=past_caches, checked_ms=checked_ms, after_ms=after_ms, session=self._session,
        )  # fmt: skip

    def _again(self, ask: Ask, copy: Copy | None) -> Ask:
        self.counts.again += 1
        return self._ask(ask.target, ask.asked, ask.level, copy, ask.after_ms, past_caches=True)

    def _without_lifetime(
        self, ask: Ask, status: int, raw: list[tuple[bytes, bytes]], latest_ms: float
    ) -> Ask | Answer:
        if status < 500 and status != 429:
            if self.copies.dated(ask.target, ask.asked) and not ask.strict:
                return self._again(ask, None)  # it used to have one, which a cache on the way may have dropped
            self.copies.saw_undated(ask.target, ask.asked, latest_ms or math.inf)
        self._read(latest_ms)
        if status in (200, 304):
            self._others[ask.target] = None
            if len(self._others) > _OTHERS:
                self._others.clear()
        self.counts.passed += 1
        if status != 304 or ask.copy is None:
            return Answer(source="passed")
        return Answer(source="passed", copy=confirmed(ask.copy, ask.copy.life, raw))

    def _with_lifetime(
        self,
        ask: Ask,
        status: int,
        headers: Mapping[str, str],
        raw: list[tuple[bytes, bytes]],
        life: Lifetime,
        latest_ms: float,
    ) -> Ask | Answer:
        self._others.pop(ask.target, None)
        etag = headers.get("etag") or (ask.copy.etag if status == 304 and ask.copy is not None else None)
        varied = varied_by(headers)
        names = set(varied or ())
        if status == 304 and ask.copy is not None:
            names.update(name for name, _ in ask.copy.identity[1])
        decided_by = tuple(sorted(names.union(CREDENTIALS if life.private else ())))
        key = identity(ask.target, ask.asked, decided_by)
        older = ask.level.monotonic_reads and self.copies.older(key, life.at_ms, etag)
        vouched = latest_ms < life.until_ms and self.sketches.vouches(
            life.sketch, _name(ask.target), life.at_ms, ask.after_ms
        )
        if older and not ask.strict:
            return self._again(ask, None)
        if not (life.at_ms >= ask.after_ms or vouched or ask.past_caches):
            return self._again(ask, ask.copy)
        self.copies.saw(key, Form(decided_by, life.sketch), life.at_ms + EARLY_MS, etag)
        self._read(life.at_ms + READ_MS if latest_ms else 0)
        self.sketches.newest_ms = max(self.sketches.newest_ms, life.at_ms if latest_ms else 0)
        may = varied is not None and not forbidden(headers, self.copies.largest_bytes)
        # Other requests without credentials may come from another user.
        may = may and not (life.private and anonymous(key))
        if status == 304 and ask.copy is not None:
            copy = replace(confirmed(ask.copy, life, raw, ask.checked_ms), identity=key)
            if not may or key != ask.copy.identity:
                self.copies.drop(ask.copy.identity)
            if may and not self.sketches.off and not (life.private and ask.session != self._session):
                self.copies.keep(copy)
            self.counts.validated += 1
            return Answer(source="validated", copy=copy, shared=may)
        self.counts.server += 1
        if etag is None or status != 200 or not may:
            return Answer(source="server")
        return Answer(source="server", keep=Keep(key, life, etag, ask.session, ask.checked_ms))


def _name(target: bytes) -> bytes:
    """Return the digest of the resource of a URL, its name in sketches."""
    path, _, query = target.partition(b"?")
    return digest(resource(path, query))
