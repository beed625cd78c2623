"""Subscriptions of a channel: records with a broker and parameters, in a dataset of the channel. Its plan joins them.

Subscriptions with equal parameters at one broker form a group. A change counts from the next run on.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from quaestor.channels.datasets import Dataset
from quaestor.channels.rewriting.definition import Parameter
from quaestor.channels.rewriting.joining import BROKER, TARGET
from quaestor.channels.rewriting.reading import parameter_column
from quaestor.channels.versions import LatestVersions
from quaestor.continuous.arrow_sql import selected
from quaestor.continuous.delivery.batch import to_json
from quaestor.errors import ConfigurationError
from quaestor.tables.catalogue import Catalogue
from quaestor.tables.changes import Snapshot
from quaestor.tables.files import TS_TYPE
from quaestor.tables.schema import TS, Column, Schema, Type

_ID: Final = "subscription"
_GROUP: Final = "member_of"
_PAUSED: Final = "paused"
_USER: Final = "username"
_KEPT_STATES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """Subscription.

    parameters: in the order of the channel's.
    user: its owner.
    paused: whether runs leave it out.
    """

    id: str
    broker: str
    parameters: tuple[Any, ...]
    user: str = ""
    paused: bool = False


class Subscriptions:
    """Subscriptions of one channel. Every change is durable when its method returns.

    Methods raise DependencyError if the storage fails.
    """

    def __init__(self, catalogue: Catalogue, channel: str, parameters: Sequence[Parameter]) -> None:
        self.channel = channel
        self.parameters = tuple(parameters)
        self.dataset = Dataset.open(catalogue, dataset_name(channel))
        columns = (
            Column(_ID, Type.TEXT),
            Column("broker", Type.TEXT),
            Column(_GROUP, Type.TEXT),
            Column(_PAUSED, Type.BOOL),
        )
        self._schema = Schema((*columns, *self._parameter_columns()), (_ID,))
        self._latest = LatestVersions(self.dataset.partitions[0], self._schema)
        self._states: dict[int, Any] = {}

    @classmethod
    def create(cls, catalogue: Catalogue, channel: str, parameters: Sequence[Parameter]) -> Subscriptions:
        """Create the dataset of a channel's subscriptions. Raises ConfigurationError if it exists."""
        own = (_ID, "broker", _GROUP, _USER)
        columns = (*(Column(name, Type.TEXT) for name in own), Column(_PAUSED, Type.BOOL))
        values = tuple(Column(parameter_column(i), entry.type or Type.TEXT) for i, entry in enumerate(parameters))
        Dataset.create(catalogue, dataset_name(channel), Schema((*columns, *values), (_ID,)), extensible=False)
        return cls(catalogue, channel, parameters)

    def add(self, broker: str, parameters: Sequence[Any], *, user: str = "") -> str:
        """Add a subscription and return its id. Raises ConfigurationError for parameters that do not fit."""
        return self.add_all([(broker, parameters)], user=user)[0]

    def add_all(self, subscriptions: Iterable[tuple[str, Sequence[Any]]], *, user: str = "") -> list[str]:
        """Add subscriptions, each a broker and parameters, in one step; return their ids. Raises as `add` does."""
        records = [self._record(str(uuid.uuid4()), broker, values, user) for broker, values in subscriptions]
        self._write(records)
        return [record[_ID] for record in records]

    def get(self, subscription: str) -> Subscription:
        """Return a subscription. Raises ConfigurationError if there is none with this id."""
        for entry in self.all():
            if entry.id == subscription:
                return entry
        raise ConfigurationError(f"channel {self.channel!r} has no subscription {subscription!r}")

    def all(self) -> list[Subscription]:
        """Return all subscriptions."""
        names = [parameter_column(number) for number in range(len(self.parameters))]
        return [
            Subscription(
                id=row[_ID],
                broker=row["broker"],
                parameters=tuple(row[name] for name in names),
                user=row[_USER],
                paused=bool(row[_PAUSED]),
            )
            for row in self.dataset.records()
        ]

    def change(self, subscription: str, *, parameters: Sequence[Any] | None = None, broker: str | None = None) -> None:
        """Change parameters or broker, from the next run on. Raises ConfigurationError."""
        before = self.get(subscription)
        record = self._record(
            subscription,
            before.broker if broker is None else broker,
            before.parameters if parameters is None else parameters,
            before.user,
        )
        self._write([{**record, _PAUSED: before.paused}])

    def pause(self, subscription: str) -> None:
        """Leave a subscription out of runs. Raises ConfigurationError."""
        self._set_paused(subscription, paused=True)

    def resume(self, subscription: str) -> None:
        """Take a subscription into runs again: it gets what is new from its next run on. Raises ConfigurationError."""
        self._set_paused(subscription, paused=False)

    def remove(self, subscription: str) -> None:
        """Remove a subscription. Raises ConfigurationError if there is none with this id."""
        self.get(subscription)
        self.dataset.delete([{_ID: subscription}])

    def relation(self, instant: int, *, individual: bool) -> Any:
        """Return the subscriptions of a run, or their groups, as the relation that plans join."""
        names = [parameter_column(number) for number in range(len(self.parameters))]
        rows = self._at(instant)
        rows = rows.filter(pc.invert(pc.fill_null(rows.column(_PAUSED), False)))
        target = _ID if individual else _GROUP
        columns = ", ".join(f"any_value({name}) AS {name}" for name in ("broker", *names))
        query = f"SELECT {target} AS target, {columns} FROM subscriptions GROUP BY ALL"
        grouped = selected(query, {"subscriptions": rows})
        fields = [rows.schema.field(name).with_nullable(True) for name in ("broker", *names)]
        wanted = pa.schema([pa.field("target", pa.string()), *fields])
        grouped = grouped.cast(wanted).rename_columns([TARGET, BROKER, *names])
        return grouped.append_column(TS, pa.repeat(pa.scalar(0, pa.int64()), grouped.num_rows).cast(TS_TYPE))

    def members(self, instant: int, groups: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
        """Return the ids of the subscriptions of groups, as they were at an instant."""
        rows = self._at(instant)
        rows = rows.filter(pc.is_in(rows.column(_GROUP), pa.array(list(groups), pa.string())))
        rows = rows.filter(pc.invert(pc.fill_null(rows.column(_PAUSED), False)))
        members: dict[str, list[str]] = {}
        for row in rows.select([_GROUP, _ID]).to_pylist():
            members.setdefault(row[_GROUP], []).append(row[_ID])
        return {group: tuple(sorted(ids)) for group, ids in members.items()}

    def _at(self, instant: int) -> Any:
        """Return the subscriptions at an instant. A state serves until the next change."""
        snapshot = self.dataset.snapshots()[0]
        version = _last_change(snapshot, instant)
        if version not in self._states:
            if len(self._states) >= _KEPT_STATES:
                del self._states[next(iter(self._states))]
            self._states[version] = self._latest.at(snapshot, version)
        return self._states[version]

    def _parameter_columns(self) -> tuple[Column, ...]:
        return tuple(Column(parameter_column(i), entry.type or Type.TEXT) for i, entry in enumerate(self.parameters))

    def _record(self, subscription: str, broker: str, parameters: Sequence[Any], user: str) -> dict[str, Any]:
        if len(parameters) != len(self.parameters):
            names = ", ".join(parameter.name for parameter in self.parameters)
            raise ConfigurationError(
                f"channel {self.channel!r} has {len(self.parameters)} parameters ({names}), not {len(parameters)}"
            )
        values = {parameter_column(number): value for number, value in enumerate(parameters)}
        group = group_of(broker, parameters)
        return {_ID: subscription, "broker": broker, _GROUP: group, _USER: user, _PAUSED: False, **values}

    def _write(self, records: Sequence[Mapping[str, Any]]) -> None:
        for rejected in self.dataset.upsert(records).rejected:
            raise ConfigurationError(f"channel {self.channel!r}: parameters do not fit: {rejected.reason}")

    def _set_paused(self, subscription: str, *, paused: bool) -> None:
        self.get(subscription)
        self.dataset.merge([{_ID: subscription, _PAUSED: paused}])


def group_of(broker: str, parameters: Sequence[Any]) -> str:
    """Return the id of the group of the subscriptions with these parameters at a broker."""
    return xxhash.xxh3_128_hexdigest(json.dumps([broker, to_json(list(parameters))]).encode())


def dataset_name(channel: str) -> str:
    """Return the name of the dataset of a channel's subscriptions."""
    return f"{channel}_subscriptions"


def _last_change(snapshot: Snapshot, instant: int) -> int:
    """Return the newest instant of a change up to an instant; -1: there was none."""
    return max((min(file.last, instant) for file in snapshot.files.values() if file.first <= instant), default=-1)
