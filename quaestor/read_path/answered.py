"""Requests that were answered, and the handler runs that made the answers: what admission goes by besides the answer itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quaestor.capture import Outcome
from quaestor.model import Version
from quaestor.policy import RoutePolicy
from quaestor.read_path.asked_fields import AskedFields
from quaestor.read_path.key import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredRequest:
    """A request, as far as it decides who may be given its answer.

    headers: its fields, raw.
    policy: of its route.
    credentials: it carried some that its route says nothing about.
    authorization_only: no others than `Authorization`.
    unlisted: see `RequestFacts.unlisted`.
    with_body: it is keyed by its body.
    leave: whether others will be allowed to keep copies.
    """

    target: Target
    headers: Sequence[tuple[bytes, bytes]]
    policy: RoutePolicy
    credentials: bool
    authorization_only: bool
    unlisted: frozenset[bytes]
    with_body: bool
    leave: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedRun:
    """Observations of one handler run: what its answer depends on.

    outcome: what it read.
    asked: what it asked the request for.
    since: the watermark when it began.
    asked_ms: when it was asked.
    """

    outcome: Outcome
    asked: AskedFields
    since: Version
    asked_ms: int
