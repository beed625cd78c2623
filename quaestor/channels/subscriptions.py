"""Subscriptions of a channel: records with a broker and parameters, in a dataset of the channel. Its plan joins them.

Subscriptions with equal parameters at one broker form a group. A change counts from the next run on.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from quaestor.channels.datasets import Dataset
from quaestor.channels.membership import ADDED, ID, PAUSED, Members, Membership, new_ids
from quaestor.channels.rewrites import revise, rewrite
from quaestor.channels.rewriting.definition import Parameter
from quaestor.channels.rewriting.reading import parameter_column
from quaestor.channels.versions import present_record
from quaestor.errors import ConfigurationError
from quaestor.tables.catalogue import Catalogue
from quaestor.tables.inference import DELETED
from quaestor.tables.newest import newest_version
from quaestor.tables.schema import Column, Schema, Type

USER: Final = "username"
"""Column of the owner of a subscription."""
SUBSCRIPTIONS_ENDING: Final = "_subscriptions"
"""End of the name of each dataset of subscriptions."""
_PARAMETER: Final = parameter_column(0)[:-1]


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
        names = [name for name in self.dataset.schema.names if name.startswith(_PARAMETER)]
        self.membership = Membership(self.dataset.partitions[0], names)

    @classmethod
    def create(cls, catalogue: Catalogue, channel: str, parameters: Sequence[Parameter]) -> Subscriptions:
        """Create the dataset of a channel's subscriptions. Raises ConfigurationError if it exists."""
        texts = (Column(name, Type.TEXT) for name in (ID, "broker", USER))
        columns = (*texts, Column(PAUSED, Type.BOOL), Column(ADDED, Type.BOOL))
        values = tuple(Column(parameter_column(i), entry.type or Type.TEXT) for i, entry in enumerate(parameters))
        Dataset.create(catalogue, dataset_name(channel), Schema((*columns, *values), (ID,)), extensible=False)
        return cls(catalogue, channel, parameters)

    def add(self, broker: str, parameters: Sequence[Any], *, user: str = "") -> str:
        """Add a subscription and return its id. Raises ConfigurationError for parameters that do not fit."""
        return self.add_all([(broker, parameters)], user=user)[0]

    def add_all(self, subscriptions: Iterable[tuple[str, Sequence[Any]]], *, user: str = "") -> list[str]:
        """Add subscriptions, each a broker and parameters, in one step; return their ids. Raises as `add` does."""
        records = [
            {**self._record(str(uuid.uuid4()), broker, values, user), ADDED: True} for broker, values in subscriptions
        ]
        self._write(records)
        return [record[ID] for record in records]

    def add_table(self, subscriptions: Any, *, user: str = "") -> list[str]:
        """Add subscriptions in one step; return their ids.

        subscriptions: Arrow table with the column `broker` and a column for each parameter, by its name. About a million rows
            fit into one step.

        Raises ConfigurationError for missing columns and values that do not fit, DependencyError.
        """
        wanted = ["broker", *(parameter.name for parameter in self.parameters)]
        if missing := [name for name in wanted if name not in subscriptions.schema.names]:
            raise ConfigurationError(f"channel {self.channel!r}: subscriptions lack the column {missing[0]!r}")
        count = subscriptions.num_rows
        ids = new_ids(count)
        columns = {
            ID: ids,
            "broker": subscriptions.column("broker"),
            USER: pa.repeat(pa.scalar(user, pa.string()), count),
            PAUSED: pa.repeat(False, count),
            ADDED: pa.repeat(True, count),
        }
        columns |= {parameter_column(i): subscriptions.column(name) for i, name in enumerate(wanted[1:])}
        rows = pa.table(columns)
        try:
            # Equal parameters lie together, which makes files smaller.
            self.dataset.add_table(rows.sort_by([(name, "ascending") for name in self._sortable(rows)]))
        except ValueError as error:
            raise self._unfit(error) from error
        return list(ids.to_pylist())

    def get(self, subscription: str) -> Subscription:
        """Return a subscription. Raises ConfigurationError if there is none with this id."""
        table = self.dataset.partitions[0]
        row = present_record(table, table.snapshot(), {ID: subscription})
        if row is None:
            raise self._unknown(subscription)
        return self._subscription(row)

    def present_at(self, subscription: str, since: int = -1) -> int | None:
        """Return the newest instant if a subscription is there; None: it is not.

        since: an instant at which it was there. Only later changes are read. -1: none is known.
        """
        table = self.dataset.partitions[0]
        snapshot = table.snapshot()
        if since < 0:
            return None if present_record(table, snapshot, {ID: subscription}) is None else snapshot.instant
        version = newest_version(table, snapshot, {ID: subscription}, after=since)
        return None if version is not None and version.row[DELETED] else snapshot.instant

    def all(self) -> list[Subscription]:
        """Return all subscriptions."""
        return [self._subscription(row) for row in self.dataset.records()]

    def change(self, subscription: str, *, parameters: Sequence[Any] | None = None, broker: str | None = None) -> None:
        """Change parameters or broker, from the next run on. Raises ConfigurationError.

        A concurrent change of something else stays. The memory holds a part of a file, however many subscriptions there are.
        """
        fields: dict[str, Any] = {} if broker is None else {"broker": broker}
        if parameters is not None:
            fields |= self._values(parameters)
        self._revise(subscription, fields)

    def pause(self, subscription: str) -> None:
        """Leave a subscription out of runs. Raises ConfigurationError."""
        self._revise(subscription, {PAUSED: True})

    def resume(self, subscription: str) -> None:
        """Take a subscription into runs again: it gets what is new from its next run on. Raises ConfigurationError."""
        self._revise(subscription, {PAUSED: False})

    def remove(self, subscription: str) -> None:
        """Remove a subscription. Raises ConfigurationError if there is none with this id."""
        self._revise(subscription, {DELETED: True})

    def remove_at(self, broker: str) -> int:
        """Remove all subscriptions at a broker in one step; return their number."""

        def gone(rows: Any) -> Any:
            there = rows.filter(pc.equal(rows.column("broker"), broker))
            return there.append_column(DELETED, pa.repeat(True, there.num_rows))

        return rewrite(self.dataset, gone)

    def move(self, source: str, target: str, *, user: str = "") -> int:
        """Give all subscriptions at a broker to another one, in one step and from the next run on; return their number.

        user: only the subscriptions of this user; empty: of all users.
        """

        def moved(rows: Any) -> Any:
            there = rows.filter(pc.equal(rows.column("broker"), source))
            if user:
                there = there.filter(pc.equal(there.column(USER), user))
            return _at_broker(there, pa.repeat(pa.scalar(target, pa.string()), there.num_rows))

        return rewrite(self.dataset, moved)

    def move_groups(self, targets: Mapping[str, str]) -> int:
        """Give the subscriptions of groups to other brokers, as `move` does. Subscriptions that have left a group stay.

        targets: broker of each group, by the group's id.
        """

        def moved(rows: Any) -> Any:
            members = self.members(self.dataset.snapshots()[0].instant, list(targets))
            broker_of = {member: targets[group] for group, group_members in members.items() for member in group_members}
            there = rows.filter(pc.is_in(rows.column(ID), pa.array(broker_of, pa.string())))
            brokers = [broker_of[member] for member in there.column(ID).to_pylist()]
            return _at_broker(there, pa.array(brokers, pa.string()))

        return rewrite(self.dataset, moved)

    def at(self, instant: int) -> Members:
        """Return the members of all groups at an instant."""
        return self.membership.at(self.dataset.snapshots()[0], instant)

    def members(self, instant: int, groups: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
        """Return the ids of the subscriptions of groups, as they were at an instant. Unknown groups are left out."""
        present = self.at(instant)
        places = self.membership.places(groups)
        ids, parents = present.of(pa.array(places.values(), pa.int32()))
        members: dict[str, list[str]] = {group: [] for group in places}
        names = list(places)
        for subscription, parent in zip(ids.to_pylist(), parents.to_pylist(), strict=True):
            members[names[parent]].append(subscription)
        return {group: tuple(sorted(ids)) for group, ids in members.items() if ids}

    def _subscription(self, row: Mapping[str, Any]) -> Subscription:
        return Subscription(
            id=row[ID],
            broker=row["broker"],
            parameters=tuple(row[parameter_column(number)] for number in range(len(self.parameters))),
            user=row[USER],
            paused=bool(row[PAUSED]),
        )

    @staticmethod
    def _sortable(rows: Any) -> list[str]:
        return [
            field.name
            for field in rows.schema
            if field.name.startswith(_PARAMETER) and not pa.types.is_nested(field.type)
        ] + ["broker"]

    def _record(self, subscription: str, broker: str, parameters: Sequence[Any], user: str) -> dict[str, Any]:
        return {ID: subscription, "broker": broker, USER: user, PAUSED: False, ADDED: False, **self._values(parameters)}

    def _values(self, parameters: Sequence[Any]) -> dict[str, Any]:
        if len(parameters) != len(self.parameters):
            names = ", ".join(parameter.name for parameter in self.parameters)
            raise ConfigurationError(
                f"channel {self.channel!r} has {len(self.parameters)} parameters ({names}), not {len(parameters)}"
            )
        return {parameter_column(number): value for number, value in enumerate(parameters)}

    def _write(self, records: Sequence[Mapping[str, Any]]) -> None:
        for rejected in self.dataset.upsert(records).rejected:
            raise self._unfit(rejected.reason)

    def _revise(self, subscription: str, fields: Mapping[str, Any]) -> None:
        """Write fields of one subscription. Raises ConfigurationError."""
        try:
            is_there = revise(self.dataset, {ID: subscription}, lambda _: {**fields, ADDED: False})
        except ValueError as error:
            raise self._unfit(error) from error
        if not is_there:
            raise self._unknown(subscription)

    def _unfit(self, reason: object) -> ConfigurationError:
        return ConfigurationError(f"channel {self.channel!r}: parameters do not fit: {reason}")

    def _unknown(self, subscription: str) -> ConfigurationError:
        return ConfigurationError(f"channel {self.channel!r} has no subscription {subscription!r}")


def _at_broker(rows: Any, brokers: Any) -> Any:
    """Return subscriptions at other brokers."""
    place = rows.schema.get_field_index("broker")
    rows = rows.set_column(place, "broker", brokers)
    return rows.set_column(rows.schema.get_field_index(ADDED), ADDED, pa.repeat(False, rows.num_rows))


def dataset_name(channel: str) -> str:
    """Return the name of the dataset of a channel's subscriptions."""
    return f"{channel}{SUBSCRIPTIONS_ENDING}"
