"""Steps of one exchange: a request as it has to be sent, the end of it, leave to keep the answer; and the work, counted. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from quaestor.client.copies import Copy, Identity
from quaestor.client.fields import Lifetime
from quaestor.client.levels import Level

Source = Literal["memory", "validated", "server", "passed"]


@dataclass(slots=True)
class Counts:
    """Work of a client since it was made.

    memory: answers from its memory.
    validated: answers from its memory after the server had said that they are still right.
    server: answers of the network, of all that carry a lifetime.
    passed: requests that it let pass, and answers without a lifetime.
    again: answers that were asked for a second time, because a cache in between may have kept them for too long.
    sketches: sketches loaded.
    refused: sketches that could not be relied on.
    """

    memory: int = 0
    validated: int = 0
    server: int = 0
    passed: int = 0
    again: int = 0
    sketches: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A request as it has to be sent.

    target: path and query as they are sent.
    asked: its header fields.
    level: the freshness that its answer has to have.
    fields: header fields to be added.
    copy: what a 304 confirms; None if the request is not conditional.
    past_caches: whether caches on the way are told to ask the server.
    checked_ms: an answer shows what was written before then, whenever it left; 0 if nothing is known of that.
    after_ms: an answer that left the server after is as new as the level wants; infinite if that is not known.
    session: which user it is for, counted.
    """

    target: bytes
    asked: Mapping[str, str]
    level: Level
    fields: tuple[tuple[str, str], ...]
    copy: Copy | None
    past_caches: bool
    checked_ms: int
    after_ms: float
    session: int

    @property
    def strict(self) -> bool:
        """Whether not even a cache that is told of writes may answer: with a condition it may."""
        return self.past_caches and all(name != "if-none-match" for name, _ in self.fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The end of an exchange.

    source: where it comes from.
    copy: the answer itself, if it comes out of memory.
    keep: how it may be kept when its body has come; None if it may not.
    shared: whether the copy may be given to others who wait for it.
    """

    source: Source
    copy: Copy | None = None
    keep: Keep | None = None
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Keep:
    """Leave to keep an answer.

    identity: what it answers.
    life: how long.
    etag: its validator.
    session: which user it is for, counted.
    checked_ms: see Ask.
    """

    identity: Identity
    life: Lifetime
    etag: str
    session: int
    checked_ms: int = 0
