"""Watch of the canary of an app: each process tells what it has counted, and judges what all have. The first to see that it is
worse than predicted for long enough rolls it back; the log of publications lets only one.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

import anyio.to_thread

from quaestor.errors import ConfigurationError
from quaestor.observability.telemetry import Telemetry
from quaestor.ttl.canary_arm import CanaryArm
from quaestor.ttl.canary_counts import NAMES, Counts, total
from quaestor.ttl.canary_rule import LEAST, Judgement, Verdict, judged
from quaestor.ttl.parameters import TtlParameters
from quaestor.ttl.published import Publication, PublishedParameters, SupersededError

VERSION: Final = 1
_MOST: Final = 10**15


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessCounts:
    """Counts of one process.

    cdn: whether a CDN stands before it.
    """

    own: Counts
    rest: Counts
    cdn: bool

    def plain(self) -> dict[str, Any]:
        """The counts as plain data for JSON."""
        return {"version": VERSION, "own": self.own.plain(), "rest": self.rest.plain(), "cdn": self.cdn}


class CanaryReports(Protocol):
    """Reports of all processes of an app. Raises StoreError."""

    async def tell(self, number: int, process: str, report: ProcessCounts) -> None:
        """Put what this process has counted of canary `number` there."""

    async def all(self, number: int) -> list[ProcessCounts]:
        """Counts of every process, also of processes that have ended."""
        ...


class OwnReports:
    """Reports of one process that is alone; implements CanaryReports."""

    def __init__(self) -> None:
        self._reports: dict[tuple[int, str], ProcessCounts] = {}

    async def tell(self, number: int, process: str, report: ProcessCounts) -> None:
        """See CanaryReports."""
        self._reports = {(number, process): report}

    async def all(self, number: int) -> list[ProcessCounts]:
        """See CanaryReports."""
        return [report for (of, _), report in self._reports.items() if of == number]


class CanaryWatch:
    """Watch of one process. Use from its event loop."""

    def __init__(self, published: PublishedParameters, reports: CanaryReports, telemetry: Telemetry) -> None:
        self._published, self._reports, self._telemetry = published, reports, telemetry
        self.process = f"{socket.gethostname()[:40]}:{os.getpid()}:{uuid.uuid4().hex[:6]}"
        self._worse: tuple[int, int] | None = None

    async def look(self, publication: Publication, arm: CanaryArm, *, cdn: bool, now_ms: int) -> Publication | None:
        """Tell, judge, and end the canary if it is time. Returns what was published; None: nothing. Raises EventLayerError and
        StoreError.

        publication: that began the canary, and counts.
        """
        number = publication.number
        await self._reports.tell(number, self.process, ProcessCounts(own=arm.own, rest=arm.rest, cdn=cdn))
        judgement = judgement_of(publication, await self._reports.all(number))
        self._show(judgement)
        if judgement.verdict is Verdict.BROKEN:
            return await self._end(publication, judgement, now_ms, promoted=False)
        if judgement.verdict is Verdict.WORSE:
            if self._worse is None or self._worse[0] != number:
                self._worse = number, now_ms
            if now_ms - self._worse[1] >= arm.canary.hold_ms:
                return await self._end(publication, judgement, now_ms, promoted=False)
            return None
        self._worse = None
        if judgement.verdict is Verdict.INSIDE and arm.canary.promote:
            return await self._end(publication, judgement, now_ms, promoted=True)
        return None

    def _show(self, judgement: Judgement) -> None:
        for figure in judgement.figures:
            for of, value in (
                ("canary", figure.canary),
                ("rest", figure.rest),
                ("low", figure.low),
                ("high", figure.high),
            ):
                self._telemetry.ttl.figures.labels(figure.name, of).set(value)

    async def _end(
        self, publication: Publication, judgement: Judgement, now_ms: int, *, promoted: bool
    ) -> Publication | None:
        assert publication.canary is not None
        why = "promoted: nothing is worse than predicted" if promoted else f"rolled back: {judgement.why}"
        publish = partial(
            self._published.publish,
            publication.canary.parameters if promoted else publication.parameters,
            base=publication.number, by=f"quaestor ({self.process})", now_ms=now_ms, why=why,
        )  # fmt: skip
        try:
            ended = await anyio.to_thread.run_sync(publish)
        except SupersededError:  # another process, or an operator, was faster
            return None
        name = "ttl.canary_promoted" if promoted else "ttl.canary_rolled_back"
        self._telemetry.ttl.ended.labels("promoted" if promoted else "rolled-back").inc()
        self._telemetry.event(name, number=ended.number, canary=publication.number, why=why)
        return ended


def judgement_of(publication: Publication, reported: Iterable[ProcessCounts]) -> Judgement:
    """Judgement on the canary of a publication by what all processes have counted."""
    assert publication.canary is not None
    reports = list(reported)
    return judged(
        publication.canary, total(report.own for report in reports), total(report.rest for report in reports),
        cdn=any(report.cdn for report in reports),
    )  # fmt: skip


def promotable(publication: Publication, judgement: Judgement | None) -> TtlParameters:
    """The parameters of a canary that may be promoted. Raises ConfigurationError that says why it may not be.

    judgement: of the canary; None: there is none.
    """
    if publication.canary is None or judgement is None:
        raise ConfigurationError("there is no canary that could be promoted: begin one with a share of the results")
    if judgement.verdict is Verdict.BROKEN:
        raise ConfigurationError(f"the canary is not promoted, it breaks a guard: {judgement.why}")
    if judgement.verdict is Verdict.WORSE:
        raise ConfigurationError(f"the canary is not promoted, it is worse than predicted: {judgement.why}")
    if judgement.verdict is Verdict.WAITING:
        few = ", ".join(f"{figure.name} {figure.observed}" for figure in judgement.figures if not figure.enough)
        raise ConfigurationError(
            f"the canary is not promoted yet: {judgement.requests} of {publication.canary.after} requests were seen"
            + (f", and too little of {few} (of {LEAST})" if few else "")
            + "".join(f"; {guard}" for guard in judgement.guards if not guard.kept)
        )
    return publication.canary.parameters


def process_counts_of(value: Any) -> ProcessCounts | None:
    """Counts of plain data; None: they cannot be read, or are of another version."""
    try:
        if value["version"] != VERSION:
            return None
        return ProcessCounts(own=_counts(value["own"]), rest=_counts(value["rest"]), cdn=value["cdn"] is True)
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def _counts(value: Mapping[str, Any]) -> Counts:
    counts = Counts(**{name: int(value[name]) for name in NAMES})
    if max(counts.requests, counts.lifetimes) > _MOST:
        raise ValueError("nobody has counted so many")
    if not 0 <= counts.hits <= counts.requests or not 0 <= counts.stale <= counts.requests:
        raise ValueError("hits and stale are of the requests")
    if not 0 <= counts.invalidations <= counts.lifetimes:
        raise ValueError("invalidations are of the lifetimes")
    return counts
