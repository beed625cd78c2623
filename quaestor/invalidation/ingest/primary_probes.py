"""How far the primary is, asked again and again: what of it proves that everything before a moment has been delivered.

The argument is in the text of `quaestor/invalidation/ingest/follower.py`.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from quaestor.model import Version

PROBES_KEPT: Final = 1_000
"""Unproven ones pile up while no majority commits; the newest suffice once it does again."""


class Probe(NamedTuple):
    """What the primary said when asked how far it is; `at_ms` was noted before asking.

    election: see Ingest.
    """

    at_ms: int
    applied: Version
    majority: Version
    images: bool
    election: str | None


def proven(probes: deque[Probe], *, delivered: Version, idle: bool) -> int | None:
    """The newest moment before which everything is delivered, if there is news; drops its probes.

    delivered: the newest version delivered.
    idle: the last read, begun after the newest probe, came back empty.
    """
    moment: int | None = None
    majority = probes[-1].majority if probes else 0
    while probes and (probes[0].applied < delivered or (idle and probes[0].applied <= majority)):
        moment = probes.popleft().at_ms
    return moment
