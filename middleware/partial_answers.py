"""Partial entries in an exchange: answering requests for a part, and completing a whole from its parts. The rules are in
`quaestor.read_path.partial_answers`; the setting is `partial_answers`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from quaestor.middleware.context import ExchangeContext
from quaestor.middleware.interface import RawHeaders
from quaestor.middleware.stale_entry import Settled, StaleEntry
from quaestor.model import CachedResponse
from quaestor.read_path import partial_answers, ranges, shared_cache_rules
from quaestor.read_path.partial_answers import Part
from quaestor.read_path.request import RequestFacts
from quaestor.read_path.reuse import Use
from quaestor.store.memory import Resident


def part_wanted(context: ExchangeContext) -> bool:
    """Whether a partial entry may answer a request, and its handler's answer may be stored as one."""
    return (
        context.parts.read_path.process.settings.store.partial_answers
        and context.facts.partial
        and context.scope["method"] == "GET"
        and not context.credentials
        and partial_answers.wanted(context.facts)
    )


def holds_part(context: ExchangeContext, resident: Resident) -> bool:
    """Whether a partial entry may be used now, and contains the requested part."""
    use = context.parts.read_path.usability.use(resident.response, context.plan.policy, context.facts.directives)
    return use is Use.FRESH and partial_answers.selected(resident.response, context.facts) is not None


def in_part(response: CachedResponse, facts: RequestFacts, headers: RawHeaders) -> tuple[int, RawHeaders, bytes]:
    """Return status, fields and body of an answer from a partial entry that contains the requested part."""
    part_and_body = partial_answers.selected(response, facts)
    assert part_and_body is not None, "the partial entry does not contain the requested part"
    part, body = part_and_body
    kept = partial_answers.without_place(headers)
    kept += [
        (b"content-range", ranges.content_range(part.span, part.size)),
        (b"content-length", b"%d" % len(body)),
    ]
    return 206, kept, body


def as_received(response: CachedResponse, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> CachedResponse:
    """Return the part as its handler sent it, out of the entry that it became part of. Verification compares it."""
    kept = partial_answers.without_place(response.headers)
    kept += [field for field in headers if field[0] in (b"content-length", b"content-range")]
    return replace(response, status=206, headers=tuple(kept), body=body)


def storable_part(
    context: ExchangeContext, status: int, fields: Sequence[tuple[bytes, bytes]], key: str
) -> Part | None:
    """Return the part that an answer with this beginning holds, if it may be stored and is worth storing.

    key: of the partial entry.
    """
    part = partial_answers.received(status, fields, context.facts)
    held = context.parts.read_path.lookup.valid(key, context.parts.read_path.clock())
    if part is not None and held is not None and partial_answers.negligible(held.response, part, fields):
        return None
    return part


class BegunEntry(StaleEntry):
    """A partial entry that its missing rest, requested now, completes to the whole."""

    __slots__ = ()

    def conditions(self) -> RawHeaders:
        """Return a range up to the end of this very representation; of another one the whole is sent (RFC 9110, 13.1.5)."""
        missing, _, validator = self._beginning()
        return [(b"range", b"bytes=%d-" % missing.span.first), (b"if-range", validator)]

    def settled(self, status: int, fields: Sequence[tuple[bytes, bytes]]) -> Settled | None:
        """Return COMPLETED for exactly the missing part. Any other answer about ranges does not fit a request for the whole."""
        missing, _, validator = self._beginning()
        if (
            status == 206
            and partial_answers.located(fields) == missing
            and partial_answers.strong_validator(fields) == validator
        ):
            return Settled.COMPLETED
        self.context.parts.read_path.lookup.drop(self.response.key)
        return Settled.MISLED if status in (206, 304, 412, 416) else None

    def completed(self, fields: Sequence[tuple[bytes, bytes]]) -> tuple[RawHeaders, bytes]:
        """Return the fields of the whole, and the bytes before the part that is coming."""
        missing, before, _ = self._beginning()
        return [*partial_answers.without_place(fields), (b"content-length", b"%d" % missing.size)], before

    def may_serve_on_error(self) -> bool:
        """Return False: a partial entry is not the whole answer."""
        return False

    def forwarded(self, *, confirmed: bool) -> bytes:
        """Return the reason for the handler run as Cache-Status parameter (RFC 9211, section 2.2)."""
        return b"fwd=partial"

    def _beginning(self) -> tuple[Part, bytes, bytes]:
        beginning = partial_answers.beginning(self.response)
        assert beginning is not None, "a BegunEntry is made only of an entry that can be completed"
        return beginning


def begun(context: ExchangeContext, key: str) -> BegunEntry | None:
    """Return the partial entry in memory that lacks only a range up to its end, to complete the requested whole; None: none.

    Explicit entries only: a guarded entry's handler runs here anyway, and its parts may depend on different reads.

    key: of the whole.
    """
    read_path = context.parts.read_path
    if (
        not read_path.process.settings.store.partial_answers
        or context.credentials
        or not context.repeatable
        or context.facts.has_body
    ):
        return None
    resident = read_path.lookup.valid(partial_answers.key_of_parts(key), read_path.clock())
    if resident is None or not shared_cache_rules.is_explicit(resident.response):
        return None
    beginning = partial_answers.beginning(resident.response)
    if beginning is None or beginning[0].size > read_path.process.settings.store.max_body_bytes:
        return None
    return BegunEntry(context=context, resident=resident, instead_of_errors=False)
