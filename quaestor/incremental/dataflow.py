"""Dataflow of one maintained result: its stages with what they remember, fed with images. A renewal builds a new one."""

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
    """Stages of one result, from the filter to the view that is shown. Not thread-safe.

    Raises QueryError where the database would fail the query; then it is of no more use, but what `shown` returns is
    still the last valid result.
    """

    def __init__(
        self,
        maintenance: Maintenance,
        records: Sequence[Document],
        foreign: Mapping[str, Sequence[Document]],
        *,
        slack: int,
    ) -> None:
        """Build the result of what was read.

        records: what `maintenance.bootstrap(slack)` found.
        foreign: the same for the joined collections, by namespace.
        slack: records to know behind a window.
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
            self._view = Window(maintenance.window, most_known=end + slack if maintenance.sliding else None)
            self._view.load(changes, complete=not maintenance.sliding or len(records) < end + slack)
        else:
            self._view = UnorderedView(maintenance.present) if maintenance.kept else StatelessView(maintenance.present)
            self._view.load(changes)

    @property
    def lacking(self) -> bool:
        """The slack is used up, and `shown` is the last result that is known."""
        return isinstance(self._view, Window) and self._view.lacking

    @property
    def slack(self) -> int | None:
        """Number of removals that can be borne; None: any."""
        return self._view.slack if isinstance(self._view, Window) else None

    @property
    def remembered(self) -> int:
        """Number of rows for which the first grouping remembers what they contributed."""
        return next((stage.remembered for stage in self._stages if isinstance(stage, GroupStage)), 0)

    def feed(self, image: AfterImage) -> list[ResultEvent]:
        """Take in one write; the events of what it changes. If it fails, the view has not changed."""
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
        """Whether anything is remembered of this record of the own namespace. O(stages)."""
        for stage in self._stages:
            held = stage.holds(key)
            if held is not None:
                return held
        return self._view.holds(key)

    def shown(self) -> list[Shown]:
        """The rows of the result. O(its length)."""
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

    def _lookup(self, place: int) -> LookupStage:
        stage = self._stages[place]
        assert isinstance(stage, LookupStage)
        return stage
