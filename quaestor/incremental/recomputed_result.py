"""Result of a query that is recomputed: read again after each write that may concern it. Pure and synchronous."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from quaestor.incremental.attribution import UnreadWrites
from quaestor.incremental.events import ResultEvent, Shown, differences
from quaestor.incremental.maintenance import Maintenance
from quaestor.incremental.recomputation import rows_of
from quaestor.incremental.renewal import RenewalPace, RenewalRequest, RenewalSettings
from quaestor.incremental.result import MaintainedResult
from quaestor.model import AfterImage, Document, Query, Version, WriteKind
from quaestor.namespaces import covers


class RecomputedResult:
    """Result of one query that cannot be maintained. Not thread-safe. The same interface as MaintainedResult.

    Each reading is the database's result at one version. Writes only request the next reading.
    """

    def __init__(
        self, maintenance: Maintenance, documents: Sequence[Any], version: Version, *, settings: RenewalSettings
    ) -> None:
        self.maintenance = maintenance
        self.pace = RenewalPace(settings)
        self._shown = rows_of(maintenance, documents)
        self._version = self._seen = version
        self._unread = UnreadWrites(maintenance)
        self._reason = ""

    @property
    def unread(self) -> UnreadWrites:
        """Writes that no reading has shown yet."""
        return self._unread

    @property
    def renewal(self) -> RenewalRequest | None:
        """Request to read again; None while no write came since the last reading."""
        if not self._reason:
            return None
        return RenewalRequest(
            query=self.maintenance.own,
            foreign=(),
            at_least=self._seen,
            not_before_ms=self.pace.not_before_ms,
            reason=self._reason,
        )

    def rows(self) -> list[Shown]:
        """Return the rows of the result, in order if it has one."""
        return self._shown

    def initial_events(self) -> list[ResultEvent]:
        """Return the result as events for a new subscriber: one `add` for each row, in order."""
        return differences((), self._shown, ordered=self.maintenance.ordered)

    def apply(self, image: AfterImage) -> list[ResultEvent]:
        """Take in one write. No event follows before the next reading."""
        at_once = image.kind in (WriteKind.GAP, WriteKind.COLLECTION)
        concerned = any(
            covers(image.namespace, namespace) if at_once else image.namespace == namespace
            for namespace in self.maintenance.namespaces
        )
        if image.kind is WriteKind.TICK or not concerned or 0 < image.version <= self._version:
            return []
        self._seen = max(self._seen, image.version)
        self._unread.note(image)
        self.ask("a write that may concern the result")
        return []

    def renew(
        self,
        documents: Sequence[Document],
        version: Version,
        *,
        foreign: Mapping[str, Sequence[Document]],
        now_ms: int = 0,
    ) -> list[ResultEvent]:
        """Take over a reading; return the differences as events.

        documents, version: what `bootstrap` finds, at this version.
        foreign: of no use here.
        now_ms: time of the reading; the next one may follow after the poll interval.

        Raises ValueError if the reading is older than the last one.
        """
        if version < self._version:
            raise ValueError(f"read at version {version}, but {self._version} is known")
        self.pace.polled(now_ms)
        old, self._shown = self._shown, rows_of(self.maintenance, documents)
        self._version = version
        if self._seen <= version:
            self._reason = ""
        events = differences(old, self._shown, ordered=self.maintenance.ordered)
        return self._unread.attributed(events, version)

    def ask(self, reason: str) -> None:
        """Request a reading."""
        self._reason = self._reason or reason

    def bootstrap(self) -> tuple[Query, ...]:
        """Return the query to read."""
        return (self.maintenance.own,)

    def forget(self, before: Version) -> None:
        """Do nothing: no write is remembered beyond the next reading."""


FollowedResult = MaintainedResult | RecomputedResult


def changes_between(old: FollowedResult, new: FollowedResult, version: Version) -> list[ResultEvent]:
    """Return the events that lead from one result of a query to another, which was read at this version."""
    events = differences(old.rows(), new.rows(), ordered=new.maintenance.ordered)
    return old.unread.attributed(events, version)
