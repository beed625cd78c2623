"""Sketches that a client holds, one for each partition in its answers, and whether they may be relied on. Pure.

The way to them is not trusted: caches in between may keep a sketch for too long, strip query strings, keep an error, drop fields.
Therefore a sketch's age counts from the server's making, against the latest time that the server's clock may show. An answer
proves that time if it repeats a number that was sent with the request (`?nonce=`). The first load carries a number, and so does
every load after an unreliable answer. The client does not use unproved sketches: it revalidates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from quaestor.client.fields import date_ms, same_etag, sketch_field
from quaestor.client.flat_sketch import FlatSketch
from quaestor.client.server_time import Moment, ServerTime

SKEW_MS = 1_000
"""Largest difference of the clocks of an application's servers."""
SHOWN_MS = 1_000
"""How much further a server's clock may be than an answer says: `Date` has whole seconds, a snapshot serves for one second."""
RETRY_MS = 1_000
"""Least time between two loads of a sketch; doubled after each failure."""
DOUBLINGS = 6
"""Number of doublings, at most: a minute."""
UNKNOWN_MS = SKEW_MS + SHOWN_MS
"""Uncertainty about the server's clock. No sketch can be proved to be younger."""
LOADING_MS = 30_000
"""A load that takes longer is lost, with its event loop or its thread."""
MAX_PARTITIONS = 64
"""Partitions that are held. Answers that name further ones are revalidated each time."""
NONCES = 2**32
MAX_BYTES = 100_000
"""Largest size of a sketch in bytes; the format ends at 32 kB."""


@dataclass(slots=True)
class Held:
    """The sketch of one partition.

    flat: as loaded last; None before.
    made_ms: when the server made it.
    etag: its validator, for a 304 if the bits are unchanged.
    retry_at_ms: monotonic clock: no load before.
    failures: unreliable loads since the last reliable one.
    """

    flat: FlatSketch | None = None
    made_ms: int = 0
    etag: str | None = None
    retry_at_ms: float = field(default=float("-inf"))
    failures: int = 0


@dataclass(frozen=True, slots=True)
class SketchRequest:
    """A request for a sketch.

    partition: of the sketch; empty: the whole.
    nonce: number that the answer has to repeat; 0: it may come from a cache.
    headers: its fields.
    asked_ms: when it is sent, by `ServerTime.elapsed_ms`.
    newest_ms: newest time of the server's that was relied on by then.
    held: the sketch that a 304 confirms.
    etag: validator of that sketch.
    """

    partition: str
    nonce: int
    headers: tuple[tuple[str, str], ...]
    asked_ms: float
    newest_ms: int
    held: FlatSketch | None = None
    etag: str | None = None


class Sketches:
    """All sketches of one client, and its knowledge of the server's clock.

    time: of the server.
    delta_s: Δ that the server recommends; None until it has.
    off: whether clients must keep nothing.
    newest_ms: newest time of the server's that was relied on, of a sketch or of an answer.
    why: the fault of the last unreliable answer.
    """

    __slots__ = ("_held", "delta_s", "newest_ms", "off", "time", "why")

    def __init__(self) -> None:
        self.time = ServerTime()
        self.delta_s: float | None = None
        self.off = False
        self.newest_ms = 0
        self.why = ""
        self._held: dict[str, Held] = {}

    @property
    def partitions(self) -> list[str]:
        """Partitions that were requested; the whole if none was."""
        return list(self._held) or [""]

    def made_ms(self, partition: str) -> int:
        """Return when the newest sketch that covers a partition was made: its own or the whole; 0 if there is none."""
        held, whole = self._held.get(partition), self._held.get("")
        return max(held.made_ms if held is not None else 0, whole.made_ms if whole is not None else 0)

    def vouches(self, partition: str, key_digest: bytes, shows_ms: int, after_ms: float) -> bool:
        """Whether a sketch made no earlier than after_ms, of the partition or the whole, permits a copy. A sketch permits a copy
        if it does not name the resource, or only because of writes that the copy includes.

        shows_ms: the copy includes all earlier writes.
        key_digest: of the resource, made by `wire_format.digest`.
        """
        for held in (self._held.get(partition), self._held.get("") if partition else None):
            if held is None or held.flat is None or held.made_ms < after_ms:
                continue
            if shows_ms > held.made_ms or not held.flat.holds(key_digest):
                return True
        return False

    def due(self, partition: str, after_ms: float, now: Moment) -> list[str]:
        """Return the sketches made before after_ms that have to be loaded for a partition; they count as being loaded.

        The whole covers every partition: it is loaded if a partition's own sketch is missing.
        """
        if partition not in self._held and len(self._held) >= MAX_PARTITIONS:
            partition = ""
        held = self._held.setdefault(partition, Held())
        wanted = [partition] if self._load(held, after_ms, now) else []
        if held.failures and partition and self._load(self._held.setdefault("", Held()), after_ms, now):
            wanted.append("")
        return wanted

    @staticmethod
    def _load(held: Held, after_ms: float, now: Moment) -> bool:
        if held.made_ms >= after_ms or now.monotonic_ms < held.retry_at_ms:
            return False
        held.retry_at_ms = now.monotonic_ms + LOADING_MS
        return True

    def ask(self, partition: str, *, nonce: int, now: Moment, proof: bool = False) -> SketchRequest:
        """Return the request that loads a sketch.

        nonce: a random number in 1..2^32.
        proof: whether the answer has to prove that it is new; always so while the server's time is unknown.
        """
        held = self._held.setdefault(partition, Held())
        headers: list[tuple[str, str]] = [("accept", "application/octet-stream")]
        etag = held.etag if held.flat is not None else None
        if etag is not None:
            headers.append(("if-none-match", etag))
        proof = proof or not self.time.known
        if proof:
            headers += [("cache-control", "no-cache"), ("pragma", "no-cache")]
        return SketchRequest(
            partition, nonce if proof else 0, tuple(headers), self.time.elapsed_ms(now), self.newest_ms, held.flat, etag
        )

    def answered(
        self,
        request: SketchRequest,
        status: int,
        headers: Mapping[str, str],
        body: bytes,
        now: Moment,
        *,
        delta_ms: float,
        written_ms: float,
    ) -> bool | None:
        """Evaluate an answer. If it may come from a cache, it must be made within delta_ms, and after written_ms.

        Returns True if it is relied on, None if it has to be requested again with proof, False if there is nothing to rely on.
        """
        held = self._held.setdefault(request.partition, Held())
        said = sketch_field(headers)
        flat = _flat(request, status, headers, body)
        proved = request.nonce > 0 and said is not None and said.nonce == request.nonce
        if said is None or flat is None or (request.nonce and not proved):
            return self._refuse(request, held, _fault(status, headers, body, flat), now)
        time_ms = max(said.made_ms, date_ms(headers)) + SHOWN_MS + SKEW_MS
        if proved:
            if time_ms < request.newest_ms:
                # The server's clock was set back: sketches dated by the earlier clock are void.
                self._held.clear()
                held = self._held[request.partition] = Held()
                self.newest_ms = 0
            self.time.prove(time_ms, request.asked_ms)
        else:
            known_ms = self.time.latest_ms(now)
            self.time.learn(time_ms, request.asked_ms)
            latest_ms = self.time.latest_ms(now)
            if not max(latest_ms - delta_ms, written_ms) <= said.made_ms <= known_ms:
                age_s = (latest_ms - said.made_ms) / 1000
                return self._refuse(request, held, f"it was made {age_s:.0f} s ago", now)
        self.off, self.newest_ms = said.off, max(self.newest_ms, said.made_ms)
        self.delta_s = said.delta_s if said.delta_s is not None else self.delta_s
        if said.made_ms >= held.made_ms or proved:
            held.flat, held.made_ms = flat, said.made_ms
            held.etag = headers.get("etag") if status == 200 else request.etag
        held.failures, held.retry_at_ms = 0, now.monotonic_ms + RETRY_MS
        return True

    def failed(self, partition: str, why: str, now: Moment) -> None:
        """Note a load without an answer."""
        held = self._held.setdefault(partition, Held())
        self.why, held.retry_at_ms = why, now.monotonic_ms + RETRY_MS * 2 ** min(held.failures, DOUBLINGS)
        held.failures += 1

    def _refuse(self, request: SketchRequest, held: Held, why: str, now: Moment) -> bool | None:
        held.etag = None  # the next one is requested whole
        self.why = why
        if not request.nonce:
            return None
        self.failed(request.partition, why, now)
        return False


def _flat(request: SketchRequest, status: int, headers: Mapping[str, str], body: bytes) -> FlatSketch | None:
    if status != 304:
        return FlatSketch.read(body) if status == 200 else None
    return request.held if same_etag(headers.get("etag"), request.etag) and request.etag is not None else None


def _fault(status: int, headers: Mapping[str, str], body: bytes, flat: FlatSketch | None) -> str:
    """Return the fault of an answer, for the log."""
    if status not in (200, 304):
        return f"its status is {status}"
    if flat is None:
        return f"{len(body)} bytes of {headers.get('content-type', 'no type')[:80]!r} are no sketch of a known format"
    if sketch_field(headers) is None:
        return f"its field Quaestor-Sketch is {headers.get('quaestor-sketch', 'not there')[:80]!r}"
    return "it does not repeat the number that was sent: an old one, from a cache on the way"
