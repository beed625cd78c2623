"""The values that the parts of an exchange hand over, look-up to handler run to delivery. The parts share nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from quaestor.capture import Outcome
from quaestor.fast_init import fast_init
from quaestor.middleware.interface import RawHeaders
from quaestor.middleware.stale_entry import StaleEntry
from quaestor.model import CachedResponse, Version
from quaestor.read_path.asked_fields import AskedFields
from quaestor.read_path.coalescing import Flight, Landing
from quaestor.read_path.decision import Event
from quaestor.read_path.partial_answers import Part
from quaestor.store.memory import Resident


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """The hand-over to the handler run: no usable entry is stored under this key.

    key: of the variant that the request selects.
    flight: led by this request; None: its handler runs uncoalesced.
    stale: an entry that may be used once the handler has confirmed it, or instead of an error.
    why: for the metrics, one of `observability.vocabularies.MISSES`.
    layer: where `stale` was found.
    begun_s: when the request came, by time.perf_counter().
    varied: entries exist under this URL, but none for the fields of this request.
    part: only a part is requested, and only that part may be stored; `key` is the partial entry's.
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
        """Return the reason why the handler ran, as a Cache-Status parameter."""
        if self.stale is None:
            return b"fwd=vary-miss" if self.varied else b"fwd=uri-miss"
        return self.stale.forwarded(confirmed=confirmed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewal:
    """An entry that was sent and will be refreshed in the background.

    early: the entry, if its lifetime is not over yet.
    """

    key: str
    early: CachedResponse | None = None


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """The outcome of a look-up.

    event: leads to the next state.
    missed: the hand-over, if that state is State.RUNNING.
    renewal: an entry to refresh besides.
    """

    event: Event
    missed: Missed | None = None
    renewal: Renewal | None = None


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerAnswer:
    """The part of a handler's answer that was not sent yet.

    status, headers: as the handler sent them, or of the stored answer that it has confirmed.
    body: all bytes held back; None: none has come yet.
    confirmed: it was a 304 about the stored answer.
    """

    status: int
    headers: RawHeaders
    body: bytes | None
    confirmed: bool = False


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class WholeAnswer:
    """The hand-over from the handler run: a complete answer with the observations of its run.

    headers: the fields to store.
    outcome: the reads of its handler.
    asked: the parts of the request that the handler looked up.
    since: the watermark when the handler began.
    asked_ms: when it began.
    part: the body is this part of the whole; status and fields then belong to the whole.
    """

    status: int
    headers: RawHeaders
    body: bytes
    outcome: Outcome
    asked: AskedFields
    since: Version
    asked_ms: int
    part: Part | None = None
