"""Steps of one exchange: a request to send, the end of it, the permission to keep the answer; and counts of the work. Pure."""

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
    validated: answers from its memory after the server had confirmed them.
    server: answers of the network with a lifetime.
    passed: requests that it let pass, and answers without a lifetime.
    again: answers that were requested a second time, because a cache in between may have kept them for too long.
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
    """A request in the form to send.

    target: path and query as they are sent.
    asked: its header fields.
    level: the required freshness of its answer.
    fields: header fields to add.
    copy: the copy that a 304 confirms; None if the request is not conditional.
    past_caches: whether caches on the way must ask the server.
    checked_ms: an answer includes every earlier write, whenever it left the server; 0 if unknown.
    after_ms: an answer that left the server later is new enough for the level; infinite if that is unknown.
    session: number of its user.
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
        """Whether even a cache that is purged must not answer; with a condition it may."""
        return self.past_caches and all(name != "if-none-match" for name, _ in self.fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The end of an exchange.

    source: of the answer.
    copy: the answer itself, if it comes out of memory.
    keep: how it may be kept once its body has come; None if it may not.
    shared: whether requests that wait for it may use the copy.
    """

    source: Source
    copy: Copy | None = None
    keep: Keep | None = None
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Keep:
    """Permission to keep an answer.

    identity: the variant that it answers.
    life: its lifetime.
    etag: its validator.
    session: number of its user.
    checked_ms: see Ask.
    """

    identity: Identity
    life: Lifetime
    etag: str
    session: int
    checked_ms: int = 0
