"""Starting position of a change stream: the one known so far, if it is still one of this database, and whether there is a gap.

A primary shows writes that its successor may never have had, so each election is a gap (see `follower.py`). So is each start of
the primary's process: its files may be an older copy. Another replica set has another history, and so has a database whose newest
write is older than what was read: nothing that was known applies to them.
"""

from __future__ import annotations

from typing import NamedTuple

from quaestor.invalidation.ingest.handover import NOT_KNOWN, Handover
from quaestor.invalidation.ingest.primary_probes import Probe
from quaestor.invalidation.ingest.resume_position import ResumePosition
from quaestor.observability.event_log import EventLog


class StartingPosition(NamedTuple):
    """A position to open the change stream at.

    gap: nobody can say what happened between what is in the pipelines and this position.
    """

    position: ResumePosition
    gap: bool


def starting_position(
    known: ResumePosition | None, probe: Probe, *, database: str | None, telemetry: EventLog
) -> StartingPosition:
    """The place to begin at, as the primary is now.

    known: the position so far, None if there is none that can be resumed from.
    database: identity of the replica set, None if it may not be asked for.
    """
    anew = ResumePosition(None, probe.majority, database, probe.election)
    if known is None:
        return StartingPosition(anew, gap=True)
    if _differ(known.database, database):
        telemetry.failure("mongodb", "ingest.other_database", "the data followed so far are another replica set's")
        return StartingPosition(anew, gap=True)
    if probe.applied < known.version:
        why = f"the primary's newest write ({probe.applied}) is older than what was already read ({known.version})"
        telemetry.failure("mongodb", "ingest.time_went_back", why)
        return StartingPosition(anew, gap=True)
    gap = _differ(known.election, probe.election)
    if gap:
        telemetry.failure("mongodb", "ingest.primary_changed", "what it did not pass on may have been read")
    return StartingPosition(known._replace(database=database, election=probe.election), gap)


def position_taken_over(handover: Handover, telemetry: EventLog) -> ResumePosition | None:
    """The position at which the earlier generations' cells leave off, if it is known and nothing lies in between. Raises
    EventLayerError."""
    if handover.as_of == NOT_KNOWN:
        return None
    followed = handover.followed()
    if not followed.unbroken:
        telemetry.failure("mongodb", "ingest.primary_changed", "cells that are succeeded may not have heard of it")
        return None
    return ResumePosition(None, handover.as_of, followed.database, followed.election)


def _differ(one: str | None, other: str | None) -> bool:
    return None not in (one, other) and one != other
