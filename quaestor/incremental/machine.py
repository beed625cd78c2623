"""One run of a maintenance: its stages with what they remember, fed with images. A renewal builds a new one."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from quaestor.incremental.aggregation import Group
from quaestor.incremental.changes import Change
from quaestor.incremental.compact import contributed
from quaestor.incremental.events import ResultEvent, Shown
from quaestor.incremental.filtering import Bag, Filter, Passing
from quaestor.incremental.joining import Lookup
from quaestor.incremental.maintenance import Maintenance, Memory
from quaestor.incremental.sorting import Window
from quaestor.model import AfterImage, Document


class Machine:
    """Not thread-safe. Raises QueryError where the database would fail the query; then it is of no more use, but what
    `shown` returns is still the last valid result."""

    def __init__(
        self,
        maintenance: Maintenance,
        records: Sequence[Document],
        foreign: Mapping[str, Sequence[Document]],
        *,
        slack: int,
    ) -> None:
        """records: what `maintenance.bootstrap(slack)` found.
        foreign: the same for the joined collections.
        """
        self._namespace = maintenance.query.namespace
        self._filter = Filter(maintenance.matches, before_images=maintenance.memory is Memory.BEFORE_IMAGES)
        self._stages = [make() for make in maintenance.stages]
        self._joined = {
            place: (side.namespace, Filter(side.matches, before_images=False), side.matches)
            for place, side in maintenance.lookups.items()
        }
        self._view: Window | Bag | Passing
        for place, (namespace, judge, matches) in self._joined.items():
            partners = [record for record in foreign.get(namespace, ()) if matches(record)]
            self._lookup(place).feed_foreign(judge.initial(partners))
        changes = self._begin(maintenance, records)
        if maintenance.window is not None:
            end = maintenance.window.end
            self._view = Window(maintenance.window, most_known=end + slack if maintenance.sliding else None)
            self._view.load(changes, complete=not maintenance.sliding or len(records) < end + slack)
        else:
            self._view = Bag(maintenance.present) if maintenance.kept else Passing(maintenance.present)
            self._view.load(changes)

    @property
    def lacking(self) -> bool:
        """The slack is used up; `shown` is the last result that is known."""
        return isinstance(self._view, Window) and self._view.lacking

    @property
    def slack(self) -> int | None:
        """How many removals can be borne; None: any number."""
        return self._view.slack if isinstance(self._view, Window) else None

    @property
    def remembered(self) -> int:
        """For how many rows the first grouping remembers what they contributed."""
        return next((stage.remembered for stage in self._stages if isinstance(stage, Group)), 0)

    def feed(self, image: AfterImage) -> list[ResultEvent]:
        """What the write changes. If it fails, the view has not changed."""
        changes: list[Change] = []
        if image.namespace == self._namespace:
            change = self._filter.change(image)
            if change is not None:
                changes += self._through([change], 0)
        for place, (namespace, judge, _) in self._joined.items():
            if image.namespace == namespace:
                change = judge.change(image)
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
        """The result. O(its length)."""
        return self._view.shown()

    def _begin(self, maintenance: Maintenance, records: Sequence[Document]) -> list[Change]:
        if not maintenance.compact:
            return self._through(self._filter.initial(records), 0)
        place, group = next((place, stage) for place, stage in enumerate(self._stages) if isinstance(stage, Group))
        for record in records:
            group.preload(*contributed(record))
        return self._through(group.feed(()), place + 1)

    def _through(self, changes: list[Change], first: int) -> list[Change]:
        for stage in self._stages[first:]:
            changes = stage.feed(changes)
        return changes

    def _lookup(self, place: int) -> Lookup:
        stage = self._stages[place]
        assert isinstance(stage, Lookup)
        return stage
