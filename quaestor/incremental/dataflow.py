"""Dataflow of one maintained result: its stages with their memory, fed with images. A renewal builds a new dataflow."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from quaestor.incremental.aggregation import GroupStage
from quaestor.incremental.changes import Change
from quaestor.incremental.contributions import contributed
from quaestor.incremental.events import ResultEvent, Shown
from quaestor.incremental.filtering import ImageFilter
from quaestor.incremental.joining import LookupStage
from quaestor.incremental.maintenance import Maintenance, PriorState
from quaestor.incremental.sorting import Window
from quaestor.incremental.views import StatelessView, UnorderedView
from quaestor.model import AfterImage, Document


class Dataflow:
    """Stages of one result, from the filter to the shown view. Not thread-safe.

    Raises QueryError where the database would fail the query. The dataflow is then useless, but `shown` still returns the last
    valid result.
    """

    def __init__(
        self,
        maintenance: Maintenance,
        records: Sequence[Document],
        foreign: Mapping[str, Sequence[Document]],
        *,
        slack: int,
    ) -> None:
        """Build the result from the records read.

        records: records that `maintenance.bootstrap(slack)` found.
        foreign: records of the joined collections, by namespace.
        slack: number of records to know behind a window.
        """
        self._namespace = maintenance.query.namespace
        self._filter = ImageFilter(
            maintenance.matches, before_images=maintenance.prior_state is PriorState.BEFORE_IMAGES
        )
        self._stages = [make() for make in maintenance.stages]
        self._joined = {
            place: (side.namespace, ImageFilter(side.matches, before_images=False), side.matches)
            for place, side in maintenance.lookups.items()
        }
        self._view: Window | UnorderedView | StatelessView
        for place, (namespace, image_filter, matches) in self._joined.items():
            partners = [record for record in foreign.get(namespace, ()) if matches(record)]
            self._lookup(place).feed_foreign(image_filter.initial(partners))
        changes = self._begin(maintenance, records)
        if maintenance.window is not None:
            end = maintenance.window.end
            known = end + slack if maintenance.sliding else None
            self._view = Window(maintenance.window, most_known=known, dropped=self._forget)
            self._view.load(changes, complete=not maintenance.sliding or len(records) < end + slack)
        else:
            self._view = UnorderedView(maintenance.present) if maintenance.kept else StatelessView(maintenance.present)
            self._view.load(changes)

    @property
    def lacking(self) -> bool:
        """Whether the slack is used up, so that `shown` is the last known result."""
        return isinstance(self._view, Window) and self._view.lacking

    @property
    def slack(self) -> int | None:
        """Number of removals that the result survives without a read; None: any number."""
        return self._view.slack if isinstance(self._view, Window) else None

    @property
    def remembered(self) -> int:
        """Number of rows whose contribution the first grouping remembers."""
        return next((stage.remembered for stage in self._stages if isinstance(stage, GroupStage)), 0)

    def feed(self, image: AfterImage) -> list[ResultEvent]:
        """Take in one write; return the events of its changes. After a failure the view has not changed."""
        changes: list[Change] = []
        if image.namespace == self._namespace:
            change = self._filter.change(image)
            if change is not None:
                changes += self._through([change], 0)
        for place, (namespace, image_filter, _) in self._joined.items():
            if image.namespace == namespace:
                change = image_filter.change(image)
                if change is not None:
                    changes += self._through(self._lookup(place).feed_foreign([change]), place + 1)
        return self._view.feed(changes) if changes else []

    def holds(self, key: Hashable) -> bool:
        """Whether a stage remembers this record of the own namespace. O(stages)."""
        for stage in self._stages:
            held = stage.holds(key)
            if held is not None:
                return held
        return self._view.holds(key)

    def shown(self) -> list[Shown]:
        """Return the rows of the result. O(its length)."""
        return self._view.shown()

    def _begin(self, maintenance: Maintenance, records: Sequence[Document]) -> list[Change]:
        if not maintenance.compact:
            return self._through(self._filter.initial(records), 0)
        place, group = next((place, stage) for place, stage in enumerate(self._stages) if isinstance(stage, GroupStage))
        for record in records:
            group.preload(*contributed(record))
        return self._through(group.feed(()), place + 1)

    def _through(self, changes: list[Change], first: int) -> list[Change]:
        for stage in self._stages[first:]:
            changes = stage.feed(changes)
        return changes

    def _forget(self, key: Hashable) -> None:
        """Forget a record beyond the horizon of the window, so that joins do not grow with the writes."""
        for place in self._joined:
            self._lookup(place).forget(key)

    def _lookup(self, place: int) -> LookupStage:
        stage = self._stages[place]
        assert isinstance(stage, LookupStage)
        return stage
