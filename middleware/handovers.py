"""The values that the parts of an exchange hand over: look-up to handler run, handler run to delivery. Nothing else is shared."""

from __future__ import annotations

from dataclasses import dataclass

from quaestor.capture import Outcome
from quaestor.middleware.interface import RawHeaders
from quaestor.middleware.stale_entry import StaleEntry
from quaestor.model import CachedResponse, Version
from quaestor.read_path.asked_fields import AskedFields
from quaestor.read_path.coalescing import Flight, Landing
from quaestor.read_path.decision import Event
from quaestor.read_path.partial_answers import Part
from quaestor.store.memory import Resident


@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """The hand-over to the handler run: nothing usable is stored under this key.

    key: of the variant that the request selects.
    flight: led by this request; None: its handler runs uncoalesced.
    stale: an entry that may be used once the handler has confirmed it, or instead of an error.
    why: for the metrics, one of `observability.vocabularies.MISSES`.
    layer: where `stale` was found.
    begun_s: when the request came, by time.perf_counter().
    varied: answers are known under this URL, but none for the fields of this request.
    part: only a part is asked for, and only that may be stored; `key` is that of the partial entry.
    """

    key: str
    flight: Flight | None
    stale: StaleEntry | None
    why: str
    layer: str
    begun_s: float
    varied: bool = False
    part: bool = False

    def land(self, how: Landing, entry: Resident | None = None) -> None:
        """End the flight, if there is one."""
        if self.flight is not None:
            self.flight.land(how, entry)

    def forwarded(self, *, confirmed: bool) -> bytes:
        """The reason why the handler was asked, as Cache-Status says it."""
        if self.stale is None:
            return b"fwd=vary-miss" if self.varied else b"fwd=uri-miss"
        return self.stale.forwarded(confirmed=confirmed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewal:
    """An entry that was sent and is to be made anew in the background.

    early: the entry, if its lifetime is not over yet.
    """

    key: str
    early: CachedResponse | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """The outcome of a look-up.

    event: leads to the next state.
    missed: if that is State.RUNNING.
    renewal: something to do besides.
    """

    event: Event
    missed: Missed | None = None
    renewal: Renewal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerAnswer:
    """The part of a handler's answer that nobody was sent yet.

    status, headers: as it sent them, or those of the stored answer that it has confirmed.
    body: all that was held back; None: nothing has come yet.
    confirmed: it was a 304 about the stored answer.
    """

    status: int
    headers: RawHeaders
    body: bytes | None
    confirmed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeAnswer:
    """The hand-over from the handler run: an answer that is complete, and what it was made of.

    headers: the fields to store.
    outcome: the reads of its handler.
    asked: what the handler asked the request for.
    since: the watermark when the handler began.
    asked_ms: when it began.
    part: the body is this part of the whole; then status and fields are those of the whole.
    """

    status: int
    headers: RawHeaders
    body: bytes
    outcome: Outcome
    asked: AskedFields
    since: Version
    asked_ms: int
    part: Part | None = None
