"""Membership: the subscriptions of a channel in memory, on three levels.

Plans join the different parameters. A group holds the parameters at one broker. Members are the subscriptions of a group.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from quaestor.continuous.arrow_sql import selected
from quaestor.continuous.delivery.batch import to_json
from quaestor.tables.changes import Snapshot
from quaestor.tables.schema import TS
from quaestor.tables.versioned import ARROW, VersionedTable

ID: Final = "subscription"
PAUSED: Final = "paused"
ADDED: Final = "added"
"""Columns of subscriptions. `added` marks the first version of a subscription: no earlier version has its id."""
NUMBER: Final = "number"
"""Number of different parameters."""
_ID_TYPE: Final = pa.binary(16)
_KEPT_STATES: Final = 8
_ROWS_AT_ONCE: Final = 500_000
_LEAST_FOLDED: Final = 10_000
_FOLDED_SHARE: Final = 8
_GROUPS: Final = (("broker", pa.string()), (NUMBER, pa.int64()), ("place", pa.int32()))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ordered:
    """Members in the order of their groups. ids: 16 bytes each. places: of their groups. starts: by group, its first member."""

    ids: Any
    places: Any
    starts: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """Members at one instant.

    parameters: the different parameters that have members, with their numbers.
    groups: place, broker, number and number of members of each group that has members.
    """

    parameters: Any
    groups: Any
    _ordered: _Ordered
    _latest: Any

    def of(self, places: Any) -> tuple[Any, Any]:
        """Return the ids of the members of groups as text, and for each the index of its group in `places`."""
        starts, last = self._ordered.starts, len(self._ordered.starts) - 1
        known = pc.min_element_wise(places.cast(pa.int64()), last)
        firsts, ends = starts.take(known), starts.take(pc.min_element_wise(pc.add(known, 1), last))
        lists = [
            self._ordered.ids.slice(first, end - first)
            for first, end in zip(firsts.to_pylist(), ends.to_pylist(), strict=True)
        ]
        ids = pa.concat_arrays(lists) if lists else pa.array([], _ID_TYPE)
        offsets = pc.cumulative_sum(pa.array([0, *map(len, lists)], pa.int64()))
        parents = pc.list_parent_indices(pa.LargeListArray.from_arrays(offsets, pa.nulls(len(ids))))
        members = pa.table({"id": ids, "parent": parents.cast(pa.int64())})
        if self._latest.num_rows:
            wanted = pa.table({"place": places.cast(pa.int32()), "parent": pa.array(range(len(places)), pa.int64())})
            kept = "SELECT id, parent FROM members ANTI JOIN latest USING (id)"
            changed = "SELECT id, parent FROM latest JOIN wanted USING (place)"
            members = selected(
                f"SELECT * FROM ({kept} UNION ALL {changed}) ORDER BY parent, id",
                {"members": members, "latest": self._latest, "wanted": wanted},
            )
        return _texts(members.column("id")), members.column("parent")


class Membership:
    """Members of the groups of one channel, brought forward by what was published since. Use from any thread.

    table: of the subscriptions.
    names: columns of the parameters.
    with_paused: whether paused subscriptions are members.

    A member takes 20 bytes of memory. Changes lie beside the ordered members until they are an eighth of them.
    """

    def __init__(self, table: VersionedTable, names: Sequence[str], *, with_paused: bool = False) -> None:
        self._table = table
        self._with_paused = with_paused
        self._hidden = "FALSE" if with_paused else f"coalesce(r.{PAUSED}, FALSE)"
        self._names = tuple(names)
        self._equal = " AND ".join(f"r.{name} IS NOT DISTINCT FROM p.{name}" for name in names) or "TRUE"
        schema = table.schema()
        types = {column.name: ARROW[column.type] for column in schema.columns}
        self._parameters = pa.schema([(name, types[name]) for name in names] + [(NUMBER, pa.int64())]).empty_table()
        self._groups = pa.schema(_GROUPS).empty_table()
        self._places: dict[str, int] = {}
        self._group_ids: list[str] = []
        self._ordered = _Ordered(
            ids=pa.array([], _ID_TYPE), places=pa.array([], pa.int32()), starts=pa.array([0], pa.int64())
        )
        self._folded = -1
        self._upto = -1
        self._recent = pa.schema([("id", _ID_TYPE), ("place", pa.int32()), (TS, pa.int64())]).empty_table()
        self._states: dict[int, Members] = {}
        self._lock = threading.Lock()

    def at(self, snapshot: Snapshot, instant: int) -> Members:
        """Return the members at an instant. Raises DependencyError."""
        version = _last_change(snapshot, instant)
        with self._lock:
            if version not in self._states:
                while len(self._states) >= _KEPT_STATES:
                    del self._states[next(iter(self._states))]
                self._states[version] = self._state(snapshot, version)
            return self._states[version]

    def group_ids(self, places: Any) -> Any:
        """Return the ids of groups."""
        with self._lock:
            self._name_groups()
            return pa.array([self._group_ids[place] for place in places.to_pylist()], pa.string())

    def places(self, groups: Sequence[str]) -> dict[str, int]:
        """Return the places of groups by id. Unknown groups are left out."""
        with self._lock:
            self._name_groups()
            return {group: self._places[group] for group in groups if group in self._places}

    def numbers(self) -> Any:
        """Return the groups that have or had members, with the numbers of their parameters: an Arrow table (target, number)."""
        with self._lock:
            self._name_groups()
            return pa.table(
                {"target": pa.array(self._group_ids, pa.string()), NUMBER: self._groups.column(NUMBER).combine_chunks()}
            )

    def _name_groups(self) -> None:
        """Make the ids of the groups that have none yet."""
        known = len(self._group_ids)
        if known < self._groups.num_rows:
            groups = self._groups.slice(known)
            values = self._parameters.drop_columns([NUMBER]).take(groups.column(NUMBER))
            names = values.schema.names
            rows = values.to_pylist() if names else [{}] * groups.num_rows
            for broker, row in zip(groups.column("broker").to_pylist(), rows, strict=True):
                group = group_of(broker, [row[name] for name in names])
                self._places[group] = len(self._group_ids)
                self._group_ids.append(group)

    def _state(self, snapshot: Snapshot, version: int) -> Members:
        if version < self._folded:
            earlier = Membership(self._table, self._names, with_paused=self._with_paused)
            return earlier._in_groups_of(self, snapshot, version)
        if version > self._upto:
            self._bring_forward(snapshot, version)
        return self._members(version)

    def _in_groups_of(self, other: Membership, snapshot: Snapshot, version: int) -> Members:
        """Return the members at an earlier instant, in the groups of another membership."""
        self._parameters, self._groups = other._parameters, other._groups
        self._bring_forward(snapshot, version)
        return self._members(version)

    def _bring_forward(self, snapshot: Snapshot, version: int) -> None:
        """Take up what was published up to a version."""
        columns = [ID, "broker", PAUSED, ADDED, "_deleted", *self._names]
        added, changed = [], [self._recent]
        for part in _larger(self._table.parts(snapshot, self._upto, version, columns)):
            first, later = self._placed(part)
            added.append(first)
            changed.append(later)
        if self._folded < 0:
            self._recent = pa.concat_tables(changed)
            self._order(pa.concat_tables(added).drop_columns([TS]) if added else self._recent.drop_columns([TS]))
            self._folded = version
        else:
            self._recent = pa.concat_tables([*changed, *added])
        self._upto = version
        if self._recent.num_rows > max(_LEAST_FOLDED, len(self._ordered.ids) // _FOLDED_SHARE):
            self._fold()

    def _placed(self, part: Any) -> tuple[Any, Any]:
        """Return id, place and instant of each row of a part: of first versions, and of further ones. No place: not active."""
        self._extend(part)
        query = f"""SELECT unhex(replace(r.{ID}, '-', '')) AS id,
            CASE WHEN r._deleted OR {self._hidden} THEN NULL ELSE g.place END AS place, epoch_us(r.{TS}) AS {TS},
            coalesce(r.{ADDED}, FALSE) AND place IS NOT NULL AS first
            FROM rows r LEFT JOIN parameters p ON {self._equal}
            LEFT JOIN groups g ON g.broker = r.broker AND g.{NUMBER} = p.{NUMBER}"""
        rows = selected(query, {"rows": part, "parameters": self._parameters, "groups": self._groups})
        first = rows.column("first")
        rows = rows.drop_columns(["first"]).cast(self._recent.schema)
        return rows.filter(first), rows.filter(pc.invert(first))

    def _extend(self, part: Any) -> None:
        """Add the parameters and groups of a part that are not known yet."""
        names = ", ".join(self._names)
        active = f"FROM rows r WHERE NOT coalesce(r._deleted, FALSE) AND NOT {self._hidden}"
        distinct = f"SELECT DISTINCT {names or 'TRUE AS _one'} {active}"
        count = self._parameters.num_rows
        query = f"""SELECT {names + ", " if names else ""}{count} + row_number() OVER () - 1 AS {NUMBER}
            FROM ({distinct}) r ANTI JOIN parameters p ON {self._equal}"""
        fresh = selected(query, {"rows": part, "parameters": self._parameters})
        self._parameters = _extended(self._parameters, fresh.sort_by(NUMBER))
        query = f"""SELECT broker, {NUMBER}, {self._groups.num_rows} + row_number() OVER () - 1 AS place FROM (
            SELECT DISTINCT r.broker, p.{NUMBER} {active.replace("rows r", f"rows r JOIN parameters p ON {self._equal}")}
        ) ANTI JOIN groups USING (broker, {NUMBER})"""
        fresh = selected(query, {"rows": part, "parameters": self._parameters, "groups": self._groups})
        self._groups = _extended(self._groups, fresh.sort_by("place"))

    def _order(self, members: Any) -> None:
        """Order members by their groups."""
        places = members.column("place").combine_chunks()
        order = pc.sort_indices(places)
        places = places.take(order)
        ids = members.column("id").combine_chunks().take(order)
        counts = selected(
            f"""SELECT coalesce(n, 0)::BIGINT AS n FROM range({self._groups.num_rows}) AS g(place)
            LEFT JOIN (SELECT place, count(*) AS n FROM members GROUP BY place) USING (place) ORDER BY place""",
            {"members": pa.table({"place": places})},
        ).column("n")
        starts = pc.cumulative_sum(pa.concat_arrays([pa.array([0], pa.int64()), counts.combine_chunks()]))
        self._ordered = _Ordered(ids=ids, places=places, starts=starts)

    def _fold(self) -> None:
        """Put the changes among the ordered members."""
        latest = self._latest(self._upto)
        ordered = pa.table({"id": self._ordered.ids, "place": self._ordered.places})
        query = """SELECT id, place FROM ordered ANTI JOIN latest USING (id)
            UNION ALL SELECT id, place FROM latest WHERE place IS NOT NULL"""
        self._order(selected(query, {"ordered": ordered, "latest": latest}).cast(ordered.schema))
        self._recent = self._recent.slice(0, 0)
        self._folded = self._upto
        self._states.clear()  # they hold the members as they were ordered before

    def _latest(self, version: int) -> Any:
        """Return id and place of the latest versions up to an instant that lie beside the ordered members."""
        query = f"""SELECT id, place FROM recent WHERE {TS} <= {version}
            QUALIFY row_number() OVER (PARTITION BY id ORDER BY {TS} DESC) = 1"""
        return selected(query, {"recent": self._recent})

    def _members(self, version: int) -> Members:
        latest, ordered = self._latest(version), self._ordered
        tables = {
            "groups": self._groups,
            "latest": latest,
            "ordered": pa.table({"id": ordered.ids, "place": ordered.places}),
            "sizes": pa.table(
                {
                    "place": pa.array(range(len(ordered.starts) - 1), pa.int32()),
                    "n": pc.subtract(ordered.starts.slice(1), ordered.starts.slice(0, len(ordered.starts) - 1)),
                }
            ),
        }
        counts = "SELECT place, n FROM sizes"
        if latest.num_rows:
            counts += " UNION ALL SELECT place, -count(*) AS n FROM ordered SEMI JOIN latest USING (id) GROUP BY place"
            counts += " UNION ALL SELECT place, count(*) AS n FROM latest WHERE place IS NOT NULL GROUP BY place"
        query = f"""SELECT broker, {NUMBER}, place, sum(n)::BIGINT AS members FROM groups JOIN ({counts}) USING (place)
            GROUP BY ALL HAVING sum(n) > 0 ORDER BY place"""
        groups = selected(query, tables)
        query = f"SELECT * FROM parameters SEMI JOIN groups USING ({NUMBER})"
        parameters = selected(query, {"parameters": self._parameters, "groups": groups})
        return Members(
            parameters=parameters.cast(self._parameters.schema),
            groups=groups.cast(pa.schema([*_GROUPS, ("members", pa.int64())])),
            _ordered=ordered,
            _latest=latest,
        )


def _extended(known: Any, fresh: Any) -> Any:
    return pa.concat_tables([known, fresh.cast(known.schema)]).combine_chunks()


def _larger(parts: Iterable[Any]) -> Iterator[Any]:
    """Yield the rows of parts in larger parts: each subscription may have a file of its own."""
    collected: list[Any] = []
    count = 0
    for part in parts:
        collected.append(part)
        count += part.num_rows
        if count >= _ROWS_AT_ONCE:
            yield pa.concat_tables(collected)
            collected, count = [], 0
    if collected:
        yield pa.concat_tables(collected)


def new_ids(count: int) -> Any:
    """Return ids of new subscriptions as text, from the system's random numbers: an id admits to results."""
    return _texts(pa.FixedSizeBinaryArray.from_buffers(_ID_TYPE, count, [None, pa.py_buffer(os.urandom(16 * count))]))


def _texts(ids: Any) -> Any:
    """Return ids of 16 bytes as text."""
    rows = selected("SELECT CAST(hex(id) AS UUID)::VARCHAR AS id FROM ids", {"ids": pa.table({"id": ids})})
    return rows.column("id").cast(pa.string())


def group_of(broker: str, parameters: Sequence[Any]) -> str:
    """Return the id of the group of the subscriptions with these parameters at a broker."""
    return xxhash.xxh3_128_hexdigest(json.dumps([broker, to_json(list(parameters))]).encode())


def _last_change(snapshot: Snapshot, instant: int) -> int:
    """Return the newest instant of a change up to an instant; -1: there was none."""
    return max((min(file.last, instant) for file in snapshot.files.values() if file.first <= instant), default=-1)
