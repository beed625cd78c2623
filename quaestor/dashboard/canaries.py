"""Canaries of one app, as operators handle them: predicted from a trace, judged by the counts of all processes, and ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quaestor.admin.request import Refused
from quaestor.dashboard.applying import Applying
from quaestor.dashboard.what_if import WhatIf
from quaestor.errors import ConfigurationError
from quaestor.ttl.canary import Canary, check_terms
from quaestor.ttl.canary_counts import total
from quaestor.ttl.canary_guards import NAMES, guards_of
from quaestor.ttl.canary_watch import CanaryReports, judgement_of, promotable
from quaestor.ttl.parameters import TtlParameters
from quaestor.ttl.published import Publication


class Canaries:
    """Canaries of one app. Use from one event loop. Raises EventLayerError and StoreError.

    applying: publishes the end of a canary.
    reports: counts of the processes.
    delta_ms: how old a client's sketch may be.
    """

    def __init__(self, applying: Applying, reports: CanaryReports, what_if: WhatIf, *, delta_ms: int) -> None:
        self._applying, self._reports, self._what_if = applying, reports, what_if
        self._delta_ms = delta_ms

    async def predicted(self, newest: Publication, parameters: TtlParameters, terms: Mapping[str, Any]) -> Canary:
        """Canary of these parameters, with the trace's prediction. Begins nothing; ends when it is cancelled.
        Raises Refused, or ConfigurationError for values that are not possible.

        newest: publication that counts.
        terms: share, and every term that is not the default (see Canary and Guards).
        """
        if "share" not in terms:
            raise Refused(400, "share is missing: the share of the results, in percent")
        guards = guards_of({name: terms[name] for name in NAMES if name in terms})
        terms = {name: value for name, value in terms.items() if name not in NAMES}
        check_terms(terms)
        predicted = await self._what_if.predicted(
            now=newest.parameters or self._applying.own,
            chosen=parameters,
            share=terms["share"],
            delta_ms=self._delta_ms,
        )
        return Canary(parameters=parameters, predicted=predicted, delta_ms=self._delta_ms, guards=guards, **terms)

    async def promote(self, *, base: int, by: str) -> Publication:
        """Publish the canary's parameters for all results. Raises SupersededError if another entry than `base` counts by now,
        ConfigurationError if there is no canary, or if it may not be promoted."""
        newest = await self._applying.decided_on(base)
        judgement = None
        if newest.canary is not None:
            judgement = judgement_of(newest, await self._reports.all(newest.number))
        return await self._applying.apply(promotable(newest, judgement), base=base, by=by)

    async def roll_back(self, *, base: int, by: str) -> Publication:
        """Publish for all results the parameters of the results outside the canary. Raises SupersededError if another entry than
        `base` counts by now, ConfigurationError if there is no canary."""
        newest = await self._applying.decided_on(base)
        if newest.canary is None:
            raise ConfigurationError("there is no canary that could be rolled back")
        return await self._applying.apply(newest.parameters, base=base, by=by)

    async def shown(self, publication: Publication) -> dict[str, Any] | None:
        """Facts about the canary of a publication, from the counts of all processes; None: the publication has no canary."""
        if publication.canary is None:
            return None
        reports = await self._reports.all(publication.number)
        judgement = judgement_of(publication, reports)
        try:
            promotable(publication, judgement)
        except ConfigurationError as error:
            hindrance = str(error)
        else:
            hindrance = ""
        return {
            "number": publication.number, "judgement": judgement.plain(), "hindrance": hindrance,
            "rest": total(report.rest for report in reports).requests, "cdn": any(report.cdn for report in reports),
        }  # fmt: skip
