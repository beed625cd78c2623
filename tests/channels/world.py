"""Datasets, channels and runs below one folder, with a clock that a test drives."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quaestor.channels.datasets import Dataset
from quaestor.channels.rewriting.compilation import CompiledChannel, compile_channel
from quaestor.channels.rewriting.definition import ChannelDefinition, Parameter, Shape
from quaestor.channels.runs.queries import shapes
from quaestor.channels.runs.results import Results
from quaestor.channels.runs.run import Runner, RunOutcome, create_tables
from quaestor.channels.subscriptions import Subscriptions
from quaestor.continuous.executors.duckdb import DuckDbExecutor
from quaestor.tables.catalogue import Catalogue
from quaestor.tables.schema import Column, Schema, Type

TWEETS = Schema(
    (
        Column("tid", Type.BIGINT),
        Column("area_code", Type.TEXT),
        Column("text", Type.TEXT),
        Column("location", Type.POINT),
        Column("hateful_flag", Type.BOOL),
    ),
    ("tid",),
)
OFFICERS = Schema((Column("oid", Type.BIGINT), Column("location", Type.POINT)), ("oid",))
SCHOOLS = Schema((Column("sid", Type.BIGINT), Column("area_code", Type.TEXT), Column("name", Type.TEXT)), ("sid",))


class World:
    """Catalogue with channels.

    now: seconds since 1970; moves only when a test moves it.
    """

    def __init__(self, folder: Path) -> None:
        self.now = 0.0
        self.folder = folder
        self.executor = DuckDbExecutor(threads=1)
        self.channels: dict[str, CompiledChannel] = {}
        self.restart()

    def restart(self) -> None:
        """Forget everything that a process holds in memory."""
        self.catalogue = Catalogue(self.folder, clock=lambda: int(self.now * 1000))
        self.runner = Runner(self.catalogue, self.executor)

    def dataset(self, name: str) -> Dataset:
        return Dataset.open(self.catalogue, name)

    def police(self, partitions: int = 1) -> None:
        """Create the datasets of the paper."""
        for name, schema in (("Tweets", TWEETS), ("OfficerLocations", OFFICERS), ("Schools", SCHOOLS)):
            Dataset.create(self.catalogue, name, schema, partitions=partitions)

    def shapes(self) -> Mapping[str, Shape]:
        return shapes(self.catalogue)

    def create(self, body: str, *parameters: str, name: str = "c", **fields: Any) -> CompiledChannel:
        """Create a channel; each parameter is a name, or a name and a type."""
        typed = (text.partition(" ") for text in parameters)
        definition = ChannelDefinition(
            name=name,
            body=body,
            parameters=tuple(Parameter(word, Type(kind) if kind else None) for word, _, kind in typed),
            **fields,
        )
        compiled = self.channels[name] = compile_channel(definition, self.shapes())
        create_tables(self.catalogue, compiled)
        return compiled

    def subscriptions(self, name: str = "c") -> Subscriptions:
        return Subscriptions(self.catalogue, name, self.channels[name].parameters)

    def subscribe(self, *parameters: Any, broker: str = "b", name: str = "c") -> str:
        return self.subscriptions(name).add(broker, parameters)

    def run(self, name: str = "c", at: float | None = None) -> RunOutcome:
        if at is not None:
            self.now = at
        return self.runner.run(self.channels[name], int(self.now * 1_000_000))

    def delivered(self, name: str = "c") -> list[tuple[str, dict[str, Any]]]:
        """Return (subscription, record) of all results so far, each group fanned out to its members; in order of runs."""
        table = Results(self.catalogue, name).table
        snapshot = table.snapshot()
        rows = sorted(table.scan(snapshot, -1, snapshot.instant).to_pylist(), key=lambda row: (row["run"], row["row"]))
        subscriptions, individual = self.subscriptions(name), self.channels[name].individual
        delivered = []
        for row in rows:
            target = row["target"]
            members = (target,) if individual else subscriptions.members(row["members_at"], [target])[target]
            delivered += [(member, json.loads(row["record"])) for member in members]
        return delivered

    def of_run(self, outcome: RunOutcome, name: str = "c") -> list[dict[str, Any]]:
        """Return the records of one run, in order."""
        table = Results(self.catalogue, name).table
        rows = table.scan(snapshot := table.snapshot(), -1, snapshot.instant).to_pylist()
        return [json.loads(row["record"]) for row in rows if row["run"] == outcome.run]
