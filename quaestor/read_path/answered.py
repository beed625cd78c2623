"""Answered requests and the handler runs behind the answers: the facts that admission needs besides the answer itself."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from quaestor.capture import Outcome
from quaestor.fast_init import fast_init
from quaestor.model import Version
from quaestor.policy import RoutePolicy
from quaestor.read_path.asked_fields import AskedFields
from quaestor.read_path.key import Target


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredRequest:
    """A request, as far as it decides which clients may receive its answer.

    headers: its fields, raw.
    policy: of its route.
    credentials: it carried credentials without a declaration of its route.
    authorization_only: `Authorization` is its only credential.
    unlisted: see `RequestFacts.unlisted`.
    with_body: it is keyed by its body.
    leave: whether caches outside may keep copies.
    route: stands for the handler.
    """

    target: Target
    headers: Sequence[tuple[bytes, bytes]]
    policy: RoutePolicy
    credentials: bool
    authorization_only: bool
    unlisted: frozenset[bytes]
    with_body: bool
    leave: bool
    route: Hashable = None


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedRun:
    """Observations of one handler run: everything that its answer depends on.

    outcome: its reads.
    asked: the parts of the request that it looked up.
    since: the watermark when it began.
    asked_ms: when the run began.
    """

    outcome: Outcome
    asked: AskedFields
    since: Version
    asked_ms: int
