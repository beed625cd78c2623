"""Starting position of a change stream: the known one, if it belongs to this database, and whether there is a gap.

A primary shows writes that its successor may never have had, so each election is a gap (see `follower.py`). Each start of the
primary's process is a gap too, because its files may be an older copy. Another replica set has another history. A database
whose newest write is older than the position has another history too. All former knowledge is then void.
"""

from __future__ import annotations

from typing import NamedTuple

from quaestor.invalidation.ingest.handover import NOT_KNOWN, Handover
from quaestor.invalidation.ingest.primary_probes import Probe
from quaestor.invalidation.ingest.resume_position import ResumePosition
from quaestor.observability.event_log import EventLog


class StartingPosition(NamedTuple):
    """Position at which to open the change stream.

    gap: writes between the content of the pipelines and this position are unknown.
    """

    position: ResumePosition
    gap: bool


def starting_position(
    known: ResumePosition | None, probe: Probe, *, database: str | None, telemetry: EventLog
) -> StartingPosition:
    """Return the position at which to begin, for the present primary.

    known: the position so far; None if the stream cannot resume.
    database: identity of the replica set; None if this user may not read it.
    """
    anew = ResumePosition(None, probe.majority, database, probe.election)
    if known is None:
        return StartingPosition(anew, gap=True)
    if _differ(known.database, database):
        telemetry.failure("mongodb", "ingest.other_database", "the data followed so far belong to another replica set")
        return StartingPosition(anew, gap=True)
    if probe.applied < (newest := max(known.version, known.reached)):
        why = f"the primary's newest write ({probe.applied}) is older than the newest event read ({newest})"
        telemetry.failure("mongodb", "ingest.time_went_back", why)
        return StartingPosition(anew, gap=True)
    gap = _differ(known.election, probe.election)
    if gap:
        telemetry.failure("mongodb", "ingest.primary_changed", "results may hold writes that the new primary lacks")
    return StartingPosition(known._replace(database=database, election=probe.election), gap)


def position_taken_over(handover: Handover, telemetry: EventLog) -> ResumePosition | None:
    """Return the position at which the earlier generations' cells stopped; None if it is unknown or followed by a gap.

    Raises EventLayerError.
    """
    if handover.as_of == NOT_KNOWN:
        return None
    followed = handover.followed()
    if not followed.unbroken:
        telemetry.failure("mongodb", "ingest.primary_changed", "cells of earlier generations may have missed the gap")
        return None
    return ResumePosition(None, handover.as_of, followed.database, followed.election)


def _differ(first: str | None, other: str | None) -> bool:
    return None not in (first, other) and first != other
