"""Sketches that a client holds, one for each partition that its answers name, and whether they may be relied on. Pure.

The way to them is not trusted: caches between may keep one for too long, strip query strings, keep an error, drop fields. So a
sketch counts from when the server made it, against the latest that the server's clock may show. That is proved by an answer
that repeats a number which was sent with the request (`?nonce=`): the first load carries one, and every load after an answer
that cannot be relied on. Of what cannot be proved the client makes no use: it revalidates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from quaestor.client.fields import date_ms, sketch_field
from quaestor.client.flat_sketch import FlatSketch
from quaestor.client.server_time import Moment, ServerTime

SKEW_MS = 1_000
"""Clocks of an application's servers may differ by this much."""
SHOWN_MS = 1_000
"""A server's clock may be so much further than what an answer says: `Date` has whole seconds, a snapshot serves for one."""
RETRY_MS = 1_000
"""Time between two loads of a sketch, at least."""
MAX_PARTITIONS = 64
"""Answers that name further ones are revalidated each time."""
NONCES = 2**32
MAX_BYTES = 100_000
"""Bytes of a sketch, at most; the format ends at 32 kB."""


@dataclass(slots=True)
class Held:
    """The sketch of one partition.

    flat: as it was loaded last; None before.
    made_ms: when the server made it.
    etag: its validator, to be told that the bits are the same.
    loading: whether it is being loaded.
    retry_at_ms: monotonic clock: not loaded again before.
    """

    flat: FlatSketch | None = None
    made_ms: int = 0
    etag: str | None = None
    loading: bool = False
    retry_at_ms: float = field(default=float("-inf"))


@dataclass(frozen=True, slots=True)
class SketchRequest:
    """A request for a sketch.

    partition: which one; empty: the whole.
    nonce: number that the answer has to repeat; 0: it may come from a cache.
    headers: its fields.
    asked: when it is sent.
    """

    partition: str
    nonce: int
    headers: tuple[tuple[str, str], ...]
    asked: Moment


class Sketches:
    """All that one client holds, and what it knows of the server's clock from them.

    time: of the server.
    delta_s: Δ that the server recommends; None until it has.
    off: whether clients are told to keep nothing.
    """

    __slots__ = ("_held", "delta_s", "off", "time")

    def __init__(self) -> None:
        self.time = ServerTime()
        self.delta_s: float | None = None
        self.off = False
        self._held: dict[str, Held] = {}

    @property
    def partitions(self) -> list[str]:
        """Those that were asked for; the whole if none was."""
        return list(self._held) or [""]

    def made_ms(self, partition: str) -> int:
        """Time that the sketch of a partition was made; 0 if there is none."""
        held = self._held.get(partition)
        return held.made_ms if held is not None else 0

    def vouches(self, partition: str, resource: str, at_ms: int) -> bool:
        """Whether what left the server at at_ms was not written before the sketch was made, as far as it tells."""
        held = self._held.get(partition)
        if held is None or held.flat is None:
            return False
        return at_ms > held.made_ms or resource not in held.flat

    def due(self, partition: str, after_ms: float, now: Moment) -> bool:
        """Whether the sketch of a partition, if made before after_ms, has to be loaded; if so, it counts as being loaded."""
        held = self._held.get(partition)
        if held is None:
            if len(self._held) >= MAX_PARTITIONS:
                return False
            held = self._held[partition] = Held()
        if held.loading or held.made_ms >= after_ms or now.monotonic_ms < held.retry_at_ms:
            return False
        held.loading = True
        return True

    def ask(self, partition: str, *, nonce: int, now: Moment, proof: bool = False) -> SketchRequest:
        """The request that loads a sketch.

        nonce: a random number in 1..2^32.
        proof: whether it has to be proved that the answer is a new one; it has while the server's time is not known.
        """
        held = self._held.setdefault(partition, Held())
        headers: list[tuple[str, str]] = [("accept", "application/octet-stream")]
        if held.etag is not None and held.flat is not None:
            headers.append(("if-none-match", held.etag))
        proof = proof or not self.time.known
        if proof:
            headers += [("cache-control", "no-cache"), ("pragma", "no-cache")]
        return SketchRequest(partition, nonce if proof else 0, tuple(headers), now)

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
        """Take an answer in. One that may come from a cache is relied on if it was made within delta_ms, and after written_ms.

        Returns True if it is relied on, None if it has to be asked for again with proof, False if there is nothing to rely on.
        """
        held = self._held.setdefault(request.partition, Held())
        said = sketch_field(headers)
        proved = request.nonce > 0 and said is not None and said.nonce == request.nonce
        flat = self._flat(held, status, headers, body)
        if said is None or flat is None or (request.nonce and not proved):
            return self._over(held, now) if request.nonce else None
        time_ms = max(said.made_ms, date_ms(headers)) + SHOWN_MS + SKEW_MS
        if proved:
            self.time.prove(time_ms, request.asked)
        else:
            self.time.learn(time_ms, request.asked)
            latest_ms = self.time.latest_ms(now)
            if not max(latest_ms - delta_ms, written_ms) <= said.made_ms <= latest_ms:
                return None
        self.off = said.off
        self.delta_s = said.delta_s if said.delta_s is not None else self.delta_s
        if said.made_ms >= held.made_ms or proved:
            held.flat, held.made_ms = flat, said.made_ms
            held.etag = headers.get("etag") if status == 200 else held.etag
        self._over(held, now)
        return True

    def failed(self, partition: str, now: Moment) -> None:
        """Nothing was answered."""
        self._over(self._held.setdefault(partition, Held()), now)

    @staticmethod
    def _flat(held: Held, status: int, headers: Mapping[str, str], body: bytes) -> FlatSketch | None:
        if status == 304:
            return held.flat if headers.get("etag", held.etag) == held.etag else None
        return FlatSketch.read(body) if status == 200 else None

    @staticmethod
    def _over(held: Held, now: Moment) -> bool:
        held.loading = False
        held.retry_at_ms = now.monotonic_ms + RETRY_MS
        return False
