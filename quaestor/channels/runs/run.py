"""Run of a channel: takes one vector of bounds, executes the plan, and publishes results and bounds as one entry (T8, T9)."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, Final

from quaestor.channels.datasets import Dataset
from quaestor.channels.rewriting.compilation import CompiledChannel, plan_of_join
from quaestor.channels.rewriting.definition import Relation
from quaestor.channels.rewriting.joining import SUBSCRIPTIONS
from quaestor.channels.rewriting.shared_joins import SharedJoin
from quaestor.channels.runs.fanning import fanned_out, parameters_in_use
from quaestor.channels.runs.relations import BEGINNING, Records, Relations, Seen
from quaestor.channels.runs.results import Bounds, Results, different, encoded, numbered, table_name
from quaestor.channels.subscriptions import Subscriptions, dataset_name
from quaestor.continuous.executors.executor import Executor
from quaestor.errors import ConfigurationError
from quaestor.tables.catalogue import Catalogue
from quaestor.tables.instants import instant_of

IDLE: Final = "no new record is relevant: nothing else was read, and no plan was executed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """Outcome of a run.

    run: its instant, and its number in the results.
    previous, current: bounds of each partition of each dataset.
    rows: results, one for each group or subscription and record.
    published: False: another process has published a run from the same bounds, and nothing is changed.
    reasons: choices of the plan; only `IDLE`: there was none.
    sizes: records of each relation.
    shared: datasets whose relation another channel had read already, and joins that another channel had executed.
    seconds: duration of each stage: load, subscriptions, execute, encode, publish; of an idle run: load, publish.
    """

    run: int
    previous: Bounds
    current: Bounds
    rows: int
    published: bool
    reasons: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)


def create_tables(catalogue: Catalogue, compiled: CompiledChannel) -> None:
    """Create the results and the subscriptions of a channel. Its start decides which records its first run counts as new.

    Raises ConfigurationError for a taken name or a bad start, DependencyError.
    """
    start: dict[str, tuple[int, ...]] = {}
    for relation in compiled.relations:
        dataset = Dataset.open(catalogue, relation.dataset)
        if compiled.definition.every_instant and len(dataset.partitions) > 1:
            raise ConfigurationError(
                f"channel {compiled.definition.name!r} is EVERY INSTANT, and {relation.dataset!r} has several partitions, "
                "whose instants have no common order: use a dataset with one partition"
            )
        start[relation.dataset] = _start(compiled.definition.start, dataset)
    Subscriptions.create(catalogue, compiled.definition.name, compiled.parameters)
    Results.create(catalogue, compiled.definition.name, start)


def drop_tables(catalogue: Catalogue, channel: str) -> None:
    """Drop the results and the subscriptions of a channel. Raises ConfigurationError if there is none of this name."""
    catalogue.drop(table_name(channel))
    Dataset.drop(catalogue, dataset_name(channel))


class Runner:
    """Runs of channels in one process. States of datasets stay in memory, so a run reads new files only.

    executor: runs the plans; a channel that is slow should have a runner of its own.
    relations: reader that several runners share; None: a reader for this runner alone.
    """

    def __init__(self, catalogue: Catalogue, executor: Executor, *, relations: Relations | None = None) -> None:
        self._catalogue = catalogue
        self._executor = executor
        self._relations = relations or Relations(catalogue)
        self._subscriptions: dict[str, Subscriptions] = {}

    def run(
        self, channel: CompiledChannel, now: int, *, due: int | None = None, joins: Collection[str] = ()
    ) -> RunOutcome:
        """Execute one run. Results and bounds are durable together, or not at all.

        now: microseconds since 1970; also the value of now() in the body.
        due: instant at which the channel is due; runners with one reader share equal relations of one instant.
        joins: keys of the joins that several channels of this instant have; one of them executes each.

        The datasets are read before the subscriptions, so a subscription gets every record that is published after it.
        Raises ConfigurationError if a dataset is gone, DependencyError. The next run then begins where this one began.
        """
        watch = _Stages()
        results = Results(self._catalogue, channel.definition.name)
        before = results.progress()
        run = max(now, before.least)
        seen = self._seen(channel, due, before.bounds)
        subscriptions = self._subscriptions_of(channel)
        members_at = subscriptions.dataset.snapshots()[0].instant
        records, shared, is_idle = self._loaded(channel, seen, before.bounds, due)
        tables = {name: entry.rows for name, entry in records.items()}
        watch.end("load")
        parts: Iterable[Any] = ()
        reasons: tuple[str, ...] = (IDLE,)
        if not is_idle:
            members = subscriptions.at(members_at)
            tables[SUBSCRIPTIONS] = parameters_in_use(members)
            watch.end("subscriptions")
            executed = [join for join in channel.joins if join.key in joins]
            for join in executed:
                joined, is_shared = self._relations.joined(join, records, due, partial(self._execute, join, tables))
                tables[join.name] = joined.rows
                shared += (join.title,) if is_shared else ()
            plan = channel.plan({name: table.num_rows for name, table in tables.items()}, executed)
            reasons = plan.reasons
            rows = self._executor.rows(plan.expression, *_instants(channel, before.bounds, seen, run), tables)
            watch.end("execute")
            rows = encoded(rows)
            if channel.definition.distinct:
                rows = different(rows)
            watch.end("encode")
            parts = fanned_out(rows, members, subscriptions.membership, individual=channel.individual)
            if channel.definition.distinct:
                parts = map(results.without_delivered, parts)
        current = {name: state.bounds for name, state in seen.items()}
        count = results.publish(numbered(parts, run, members_at), run, before, current)
        watch.end("publish")
        return RunOutcome(
            run=run,
            previous=before.bounds,
            current=current,
            rows=count or 0,
            published=count is not None,
            reasons=reasons,
            sizes={name: table.num_rows for name, table in tables.items()},
            seconds=watch.seconds,
            shared=shared,
        )

    def _loaded(
        self, channel: CompiledChannel, seen: Mapping[str, Seen], previous: Bounds, due: int | None
    ) -> tuple[dict[str, Records], tuple[str, ...], bool]:
        """Return the relations, the datasets that another channel had read already, and whether no record is relevant.

        New records come first. If none of them is relevant, no other relation is read.
        """
        records: dict[str, Records] = {}
        shared: list[str] = []

        def load(relations: Iterable[Relation]) -> None:
            for relation in relations:
                name = relation.dataset
                records[relation.name], is_shared = self._relations.records(relation, seen[name], previous[name], due)
                if is_shared:
                    shared.append(name)

        needed = {condition.relation for conditions in channel.relevant for condition in conditions}
        load(relation for relation in channel.relations if relation.name in needed)
        is_idle = bool(channel.relevant) and not any(
            all(records[condition.relation].fulfil(condition) for condition in conditions)
            for conditions in channel.relevant
        )
        if not is_idle:
            load(relation for relation in channel.relations if relation.name not in needed)
        return records, tuple(shared), is_idle

    def _execute(self, join: SharedJoin, tables: Mapping[str, Any]) -> Any:
        """Return the rows of a join. Its conditions compare instants of its records only, so no instant of the run matters."""
        query = plan_of_join(join, {name: table.num_rows for name, table in tables.items()})
        return self._executor.rows(query, None, 0, join.by_table(tables))

    def _seen(self, channel: CompiledChannel, due: int | None, least: Bounds) -> dict[str, Seen]:
        names = dict.fromkeys(relation.dataset for relation in channel.relations)
        if channel.definition.every_instant:
            return self._relations.closed(names)
        return {name: self._relations.seen(name, due, least[name]) for name in names}

    def _subscriptions_of(self, channel: CompiledChannel) -> Subscriptions:
        name = channel.definition.name
        location = self._catalogue.open(dataset_name(name)).table.location
        if location not in self._subscriptions:
            self._subscriptions[location] = Subscriptions(self._catalogue, name, channel.parameters)
        return self._subscriptions[location]


class _Stages:
    """Durations of the stages of a run, in seconds."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._began = time.perf_counter()

    def end(self, stage: str) -> None:
        now = time.perf_counter()
        self.seconds[stage], self._began = now - self._began, now


def _instants(channel: CompiledChannel, previous: Bounds, seen: Mapping[str, Seen], run: int) -> tuple[int | None, int]:
    """Return the instants that a plan gets as tau and t."""
    if not channel.definition.every_instant:
        return None, run
    dataset = channel.relations[0].dataset
    after = previous[dataset][0]
    return (None if after == BEGINNING else after), seen[dataset].bounds[0]


def _start(text: str, dataset: Dataset) -> tuple[int, ...]:
    if text == "now":
        return tuple(snapshot.instant for snapshot in dataset.snapshots())
    if text == "beginning":
        return (BEGINNING,) * len(dataset.partitions)
    try:
        return (instant_of(datetime.fromisoformat(text)),) * len(dataset.partitions)
    except ValueError as error:
        raise ConfigurationError(f"{text!r} is no instant: write beginning, now, or 2026-11-28T12:00:00Z") from error
