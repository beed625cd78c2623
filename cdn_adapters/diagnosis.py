"""Diagnosis of one place by its capabilities, as data: whether they suffice for the application. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from quaestor.cdn_adapters.backlog import Backlog
from quaestor.cdn_adapters.capabilities import Capabilities
from quaestor.cdn_adapters.tag_field import fitting, spelled
from quaestor.cdn_ports import Facts, Finding, Level

_NEARLY: Final = 0.7
"""Share of a capacity that is worth a warning: a later minute may be busier."""


def findings(capabilities: Capabilities, facts: Facts, *, busiest_per_s: float, dead: int) -> list[Finding]:
    """Return the findings about one place; none, if all is well.

    busiest_per_s: requested purges in a second of the busiest minute.
    dead: purges that were refused for good.
    """
    return [
        *_capacity(capabilities, busiest_per_s),
        *_lifetime(capabilities, facts),
        *_field(capabilities, facts),
        *_refused(dead),
    ]


def _capacity(capabilities: Capabilities, busiest_per_s: float) -> Iterator[Finding]:
    kind = capabilities.kinds[0]
    capacity = Backlog(capabilities).capacity_per_s(kind)
    if capacity is None:
        return
    needed = busiest_per_s * (3 if capabilities.tiered else 2)  # each purge is repeated, with tiers twice
    when = "in the busiest minute of the last hour"
    sentence = f"its limits allow {capacity:,.1f} purges by {kind} a second; {needed:,.1f} were needed {when}"
    if needed > capacity:
        why = f"{sentence}: it serves what is stale for longer and longer; raise the plan, or cache there what changes less"
        yield Finding(level=Level.BLOCK, sentence=why)
    elif needed > _NEARLY * capacity:
        yield Finding(level=Level.WARN, sentence=sentence)


def _lifetime(capabilities: Capabilities, facts: Facts) -> Iterator[Finding]:
    bound_ms = capabilities.effective_within_ms
    if bound_ms >= facts.lives_ms:
        why = (
            f"a purge is effective within {bound_ms / 1_000:g} s, and copies live for {facts.lives_ms / 1_000:g} s at most"
            " (ttl_max_ms): they expire before they are purged"
        )
        yield Finding(level=Level.WARN, sentence=why)


def _field(capabilities: Capabilities, facts: Facts) -> Iterator[Finding]:
    field = capabilities.tag_field
    if field is None:
        return
    kept = fitting(field, facts.tags)
    if spelled(field, facts.tags[0]) not in kept:
        why = f"not even an answer's own tag fits into {field.name}: nothing can be purged by tag"
        yield Finding(level=Level.BLOCK, sentence=why)
    elif spelled(field, facts.tags[-1]) not in kept:
        why = (
            f"the deployment's tag ({len(facts.tags[-1])} bytes) does not fit into {field.name}: not everything can be purged"
            " after a loss of state; choose a shorter `deployment`"
        )
        yield Finding(level=Level.BLOCK, sentence=why)


def _refused(dead: int) -> Iterator[Finding]:
    if dead:
        why = f"{dead} purges were refused for good: `quaestor cdn queue ls --dead` says why"
        yield Finding(level=Level.WARN, sentence=why)
