"""Checks of the background services of a hosted app: whether one has failed since the app started."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from quaestor.doctor.diagnosis import Diagnosis, mend, ok, warn
from quaestor.runtime.supervision.service import ServiceReport, ServiceState

SUBJECT: Final = "background services"


def examined(reports: Sequence[ServiceReport]) -> Iterator[Diagnosis]:
    """Diagnoses of the services that have failed.

    reports: reports on all services of the app.
    """
    failed = [report for report in reports if report.failures]
    if not failed:
        yield ok(SUBJECT, f"{len(reports)} were started, none has failed")
    for report in failed:
        say = mend if report.state is ServiceState.DEGRADED else warn
        yield say(
            SUBJECT, report.sentence, "look for service.failed in the log, which has the stack; docs/failure_modes.md"
        )
