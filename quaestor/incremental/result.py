"""Query result that the writes keep up to date. Pure and synchronous: no clock, no database, no thread.

    >>> maintained = maintain(query, initial=records, version=read_at)    # records: results of `bootstrap_queries(query)`
    >>> events = maintained.apply(image)                                  # for every image, in the order of the stream
    >>> if maintained.renewal is not None:                                # read again, hand it over
    ...     events += maintained.renew(records, version, now_ms=now)

Source: InvaliDB (PVLDB 2020), sections 5.1 and 5.2; Wingerath's thesis, section 3.3.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from quaestor.incremental.attribution import UnreadWrites
from quaestor.incremental.dataflow import Dataflow
from quaestor.incremental.events import ResultEvent, Shown, differences
from quaestor.incremental.maintenance import Maintenance, PriorState
from quaestor.incremental.planning import plan_maintenance
from quaestor.incremental.renewal import RenewalPace, RenewalRequest, RenewalSettings
from quaestor.incremental.versions import Versions
from quaestor.model import AfterImage, Document, Query, Version, WriteKind
from quaestor.namespaces import covers
from quaestor.query.bson_order import order_key

_USED_UP = "the slack is used up"
_NO_FOREIGN: Mapping[str, Sequence[Document]] = {}


def bootstrap_queries(
    query: Query, *, prior_state: PriorState = PriorState.MEMBERSHIP, settings: RenewalSettings | None = None
) -> tuple[Query, ...]:
    """Return the queries to read before `maintain`: for the own records first, then one for each joined collection."""
    maintenance = plan_maintenance(query, prior_state)
    return (maintenance.bootstrap((settings or RenewalSettings()).slack), *maintenance.foreign())


def maintain(
    query: Query,
    *,
    initial: Sequence[Document],
    version: Version,
    foreign: Mapping[str, Sequence[Document]] = _NO_FOREIGN,
    prior_state: PriorState = PriorState.MEMBERSHIP,
    settings: RenewalSettings | None = None,
    stale_dropped: bool = False,
) -> MaintainedResult:
    """Keep the result of `query` from now on.

    initial, foreign: results of the `bootstrap_queries`, foreign by namespace.
    version: the read contains every write up to it, so images up to it are ignored. With membership, the read may contain later
        writes too; with before-images it must be the snapshot of that version.
    stale_dropped: the source of the images drops stale ones and redeliveries (a node's retention does). No versions are
        remembered here then.

    Raises MalformedQueryError if mongod would refuse the query, UnsupportedQueryError with the reason if it cannot be
    maintained. Raises another QueryError if mongod would fail it on these records.
    """
    return MaintainedResult(
        plan_maintenance(query, prior_state),
        initial,
        version,
        foreign=foreign,
        settings=settings or RenewalSettings(),
        stale_dropped=stale_dropped,
    )


class MaintainedResult:
    """Result of one query, maintained by the writes. Not thread-safe.

    After the same writes it always equals the database's result of the `unambiguous` query.

    pace: of its renewals.
    """

    def __init__(
        self,
        maintenance: Maintenance,
        initial: Sequence[Document],
        version: Version,
        *,
        foreign: Mapping[str, Sequence[Document]],
        settings: RenewalSettings,
        stale_dropped: bool = False,
    ) -> None:
        self.maintenance = maintenance
        self._settings = settings
        self.pace = RenewalPace(settings)
        self._dataflow = Dataflow(maintenance, initial, foreign, slack=self.pace.slack)
        repeatable = maintenance.prior_state is PriorState.MEMBERSHIP
        self._versions = Versions(version, repeatable=repeatable, dropped=stale_dropped)
        self._seen = version
        self._request: RenewalRequest | None = None
        self._broken = False
        self._waiting: list[AfterImage] = []
        self._asked_slack = self.pace.slack
        self._insisted = False
        self._unread = UnreadWrites(maintenance)
        if self._dataflow.lacking:
            self._ask(_USED_UP)

    @property
    def renewal(self) -> RenewalRequest | None:
        """Request for a new read; until it is answered the result stands still. None: no read is needed."""
        return self._request

    @property
    def unread(self) -> UnreadWrites:
        """Writes that the next reading will show."""
        return self._unread

    @property
    def slack(self) -> int | None:
        """Number of removals that the result survives without a renewal; None: any number."""
        return self._dataflow.slack

    @property
    def remembered(self) -> int:
        """Number of records whose contribution the aggregation stage remembers."""
        return self._dataflow.remembered

    def holds(self, namespace: str, key: Any) -> bool:
        """Whether a write to this record may change the result although the record does not match after it.

        For callers that find concerned results by an index. A write to a record that neither matches nor is held need not be
        applied. A caller that drops stale images must still know its version.
        """
        if self._request is not None or self.maintenance.prior_state is PriorState.BEFORE_IMAGES:
            return namespace in self.maintenance.namespaces
        if any(side.namespace == namespace for side in self.maintenance.lookups.values()):
            return True
        return namespace == self.maintenance.query.namespace and self._dataflow.holds(order_key(key))

    def result(self) -> list[Any]:
        """Return the result as the database would; of count a list with the number. O(its length).

        Empty if nothing is kept of it (an unordered find by before-images only sends events).
        """
        return [row.document for row in self._dataflow.shown()]

    def rows(self) -> list[Shown]:
        """Return the rows of the result, in order if it has one. O(its length)."""
        return self._dataflow.shown()

    def initial_events(self) -> list[ResultEvent]:
        """Return the result as events for a new subscriber: one `add` for each row, in order."""
        return differences((), self._dataflow.shown(), ordered=self._ordered)

    def apply(self, image: AfterImage) -> list[ResultEvent]:
        """Take in one write; the events lead from `result` before to `result` after. Stale images change nothing.

        Never raises because of a record: an undecidable case requests a renewal.
        """
        if image.kind is WriteKind.TICK:
            return []
        if image.kind in (WriteKind.GAP, WriteKind.COLLECTION):
            self._on_collection(image)
            return []
        if image.namespace not in self.maintenance.namespaces:
            return []
        if not self._versions.admit((image.namespace, order_key(image.key)), image):
            return []
        self._seen = max(self._seen, image.version)
        if self._request is not None:
            self._wait(image)
        events = [] if self._broken else self._fed(image)
        if self._request is not None:
            self._unread.note(image)
        return events

    def renew(
        self,
        documents: Sequence[Document],
        version: Version,
        *,
        foreign: Mapping[str, Sequence[Document]] = _NO_FOREIGN,
        now_ms: int = 0,
    ) -> list[ResultEvent]:
        """Continue from a new read; return only the differences as events.

        documents, foreign, version: as for `maintain`, read by the queries of `renewal` (without one: by `bootstrap`).
        now_ms: time of the read; the next renewal may follow after the poll interval. If no renewal is needed any more, a read
            older than the seen images changes nothing.

        Raises ValueError if the read is older than `renewal.at_least`: read again, causally after that version.
        """
        if self._request is None and version < self._seen:
            return []
        least = self._seen if self._request is None else self._request.at_least
        if version < least:
            raise ValueError(f"read at version {version}, but {least} or later is needed: read causally after it")
        self.pace.polled(now_ms)
        old = self._dataflow.shown()
        waiting = [image for image in self._waiting if image.version > version]
        try:
            self._dataflow = Dataflow(self.maintenance, documents, foreign, slack=self._asked_slack)
        except Exception as error:
            self._ask(f"cannot be built from the records read: {error}", broken=True)
            return []
        self._request, self._broken, self._insisted, self._waiting = None, False, False, []
        self._versions.forget(version + 1)
        self._seen = max(self._seen, version)
        for image in waiting:
            if self._request is not None:
                self._wait(image)
            if not self._broken:
                self._fed(image)
        if self._dataflow.lacking and self._request is None:
            self._ask(_USED_UP)
        events = differences(old, self._dataflow.shown(), ordered=self._ordered) if self.maintenance.kept else []
        return self._unread.attributed(events, self._seen)

    def ask(self, reason: str) -> None:
        """Request a renewal without a cause in the images: their source had to begin anew.

        From now on images are kept for replay on the next read.
        """
        self._insisted = True
        if self._request is None:
            self._ask(reason)

    def bootstrap(self) -> tuple[Query, ...]:
        """Return the queries to read for a renewal now: for the own records, then for the joined collections."""
        return (self.maintenance.bootstrap(self._asked_slack), *self.maintenance.foreign())

    def forget(self, before: Version) -> None:
        """Drop duplicate-detection state of images older than `before`, which will not arrive any more."""
        self._versions.forget(min(before, self._seen + 1))

    @property
    def _ordered(self) -> bool:
        return self.maintenance.window is not None

    def _fed(self, image: AfterImage) -> list[ResultEvent]:
        was_lacking = self._dataflow.lacking
        try:
            events = self._dataflow.feed(image)
        except Exception as error:
            self._ask(str(error) or repr(error), broken=True)
            return []
        if self._dataflow.lacking:
            if self._request is None:
                self.pace.used_up(image.wall_ms)
                self._asked_slack = self.pace.slack
                self._ask(_USED_UP)
        elif was_lacking and not self._insisted:
            self._request, self._waiting = None, []
            self._unread.clear()
        return [self._attributed(event, image) for event in events]

    def _attributed(self, event: ResultEvent, image: AfterImage) -> ResultEvent:
        direct = (
            self.maintenance.records
            and image.namespace == self.maintenance.query.namespace
            and order_key(event.key) == order_key(image.key)
        )
        return replace(event, version=image.version, operation=image.kind if direct else None)

    def _on_collection(self, image: AfterImage) -> None:
        if any(covers(image.namespace, namespace) for namespace in self.maintenance.namespaces):
            self._seen = max(self._seen, image.version)
            self._waiting = []
            self._ask(f"{image.kind.value} event on {image.namespace}", broken=True)

    def _ask(self, reason: str, *, broken: bool = False) -> None:
        """Request a renewal at least as new as the seen images."""
        self._broken = self._broken or broken
        if self._request is not None and not broken:
            return
        own, *foreign = self.bootstrap()
        self._waiting = []
        self._request = RenewalRequest(
            query=own,
            foreign=tuple(foreign),
            at_least=self._seen,
            not_before_ms=self.pace.not_before_ms,
            reason=reason,
        )

    def _wait(self, image: AfterImage) -> None:
        """Keep an image that the renewal's read may not contain."""
        self._waiting.append(image)
        if len(self._waiting) > self._settings.most_waiting and self._request is not None:
            self._waiting = []
            self._request = replace(self._request, at_least=self._seen)
