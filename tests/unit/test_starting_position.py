"""Where a change stream begins: at the known position, or anew with a gap; and what a failure says about that position."""

from __future__ import annotations

import pytest
from pymongo.errors import AutoReconnect, OperationFailure

from quaestor.errors import DatabaseError
from quaestor.invalidation.ingest.handover import FirstGeneration, Followed
from quaestor.invalidation.ingest.primary_probes import Probe
from quaestor.invalidation.ingest.resume_position import ResumePosition
from quaestor.invalidation.ingest.starting_position import position_taken_over, starting_position
from quaestor.invalidation.ingest.stream_failures import StreamFailure, stream_failure
from quaestor.observability.telemetry import Telemetry

PROBE = Probe(at_ms=1, applied=9, majority=7, images=True, election="second")
KNOWN = ResumePosition(b"token", 5, "set", "second", gap=3, life="one")
FRESH = ResumePosition(None, 7, "set", "second")


@pytest.mark.parametrize(
    ("known", "database", "position", "gap"),
    [
        (None, "set", FRESH, True),
        (KNOWN, "set", KNOWN, False),
        (KNOWN, "another set", FRESH._replace(database="another set"), True),
        (KNOWN, None, KNOWN._replace(database=None), False),
        (KNOWN._replace(database=None), "set", KNOWN, False),
        (KNOWN._replace(election="first"), "set", KNOWN, True),
        (KNOWN._replace(election=None), "set", KNOWN, False),
        (KNOWN._replace(version=10), "set", FRESH, True),
        (KNOWN._replace(version=9), "set", KNOWN._replace(version=9), False),
        (KNOWN._replace(election="first"), "another set", FRESH._replace(database="another set"), True),
    ],
)
def test_a_stream_goes_on_unless_its_history_is_another(
    known: ResumePosition | None, database: str | None, position: ResumePosition, gap: bool
) -> None:
    """Another replica set means another place and a gap, another primary the same place and a gap; what is not known is no
    difference. A newest write older than the position means that time went back: another place and a gap."""
    assert starting_position(known, PROBE, database=database, telemetry=Telemetry()) == (position, gap)


class Resized(FirstGeneration):
    """A handover from grids whose ingest followed this database."""

    def __init__(self, as_of: int, *, unbroken: bool) -> None:
        self.as_of = as_of
        self._followed = Followed("set", "first", unbroken)

    def followed(self) -> Followed:
        return self._followed


def test_a_new_generation_begins_where_the_earlier_ones_have_got_to_if_nothing_lies_in_between() -> None:
    telemetry = Telemetry()
    assert position_taken_over(FirstGeneration(), telemetry) is None
    assert position_taken_over(Resized(0, unbroken=True), telemetry) is None
    assert position_taken_over(Resized(5, unbroken=False), telemetry) is None
    assert position_taken_over(Resized(5, unbroken=True), telemetry) == ResumePosition(None, 5, "set", "first")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (AutoReconnect("away"), StreamFailure.UNRELATED),
        (OperationFailure("Unauthorized", 13), StreamFailure.UNRELATED),
        (OperationFailure("no code"), StreamFailure.UNRELATED),
        (OperationFailure("ChangeStreamHistoryLost", 286), StreamFailure.POSITION_LOST),
        (OperationFailure("BSONObjectTooLarge", 10334), StreamFailure.EVENT_TOO_LARGE),
        (OperationFailure("something else", 1), StreamFailure.REFUSED),
        (DatabaseError("the server closed the change stream"), StreamFailure.REFUSED),
    ],
)
def test_only_an_answer_of_the_server_says_something_about_the_position(error: Exception, kind: StreamFailure) -> None:
    assert stream_failure(error) is kind
