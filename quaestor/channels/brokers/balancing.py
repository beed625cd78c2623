"""Placement of subscriptions at brokers: a broker for each new one, and moves of groups from loaded brokers to others.

The load of a group is the bytes of its results times its members, because a broker fans each result out to them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from quaestor.channels.membership import NUMBER, group_of
from quaestor.channels.rewriting.compilation import CompiledChannel
from quaestor.channels.runs.results import RUN, Results
from quaestor.channels.subscriptions import Subscriptions
from quaestor.continuous.arrow_sql import selected
from quaestor.tables.catalogue import Catalogue

TOLERANCE: Final = 0.1
"""Share of the mean load by which two brokers may differ, and by which a broker may lie over the mean."""
LOOKED_BACK: Final = 30
"""Newest runs with results by which loads are known, or more runs in joined files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLoad:
    """Load of a group at its broker: bytes of results times members, in the newest runs."""

    group: str
    broker: str
    load: int
    members: int = 1


def moves(loads: Sequence[GroupLoad], brokers: Iterable[str]) -> dict[str, str]:
    """Return the new broker of each group that moves.

    brokers: that share the load. A group at another broker stays there.

    Each move goes from the most to the least loaded broker and brings the two closer together, so the moves end. A group is
    never divided: a group with half of the load keeps one broker loaded.
    """
    sums = dict.fromkeys(brokers, 0)
    groups: dict[str, dict[str, int]] = defaultdict(dict)
    for entry in loads:
        if entry.broker in sums:
            sums[entry.broker] += entry.load
            groups[entry.broker][entry.group] = entry.load
    moved: dict[str, str] = {}
    mean = sum(sums.values()) / len(sums) if sums else 0
    while sums:
        most, least = max(sums, key=lambda name: (sums[name], name)), min(sums, key=lambda name: (sums[name], name))
        gap = sums[most] - sums[least]
        fitting = [(load, group) for group, load in groups[most].items() if 0 < load < gap]
        if gap <= TOLERANCE * mean or not fitting:
            break
        load, group = min(fitting, key=lambda entry: (abs(gap - 2 * entry[0]), entry[1]))
        del groups[most][group]
        groups[least][group] = load
        sums[most] -= load
        sums[least] += load
        moved[group] = least
    origin = {entry.group: entry.broker for entry in loads} if moved else {}
    return {group: broker for group, broker in moved.items() if origin[group] != broker}


def placement(brokers: Sequence[str], subscriptions: Mapping[str, int], parameters: Sequence[Any]) -> str:
    """Return the broker of a new subscription: the same one for equal parameters, as long as it has room.

    brokers: that may take it, at least one.
    subscriptions: of the channel, by broker.

    A broker has room up to a tenth over the mean. Each choice of parameters has its own order of brokers, so a further broker
    takes its share from all others. Source: Mirrokni, Thorup, Zadimoghaddam, "Consistent hashing with bounded loads" (2018),
    with the order of Thaler and Ravishankar, "Using name-based mappings" (1998).
    """
    counts = {name: subscriptions.get(name, 0) for name in brokers}
    most = math.ceil((1 + TOLERANCE) * (sum(counts.values()) + 1) / len(counts))
    order = sorted(counts, key=lambda name: group_of(name, parameters))
    return next(name for name in order if counts[name] < most)


def load_at(loads: Iterable[GroupLoad], broker: str) -> int:
    """Return the load of a broker."""
    return sum(entry.load for entry in loads if entry.broker == broker)


def group_loads(catalogue: Catalogue, channel: CompiledChannel, subscriptions: Subscriptions) -> list[GroupLoad]:
    """Return the loads of the present groups of a channel in its newest runs. Raises DependencyError.

    Groups with equal parameters have equal results, also at another broker. A group that has moved keeps its load therefore.
    """
    membership = subscriptions.membership
    present = subscriptions.at(subscriptions.dataset.snapshots()[0].instant)
    places, numbers = present.groups.column("place").combine_chunks(), present.groups.column(NUMBER).combine_chunks()
    if channel.individual:
        ids, parents = present.of(places)
        targets = pa.table({"target": ids, NUMBER: numbers.take(parents)})
    else:
        targets = membership.numbers()
    bytes_of = _bytes(Results(catalogue, channel.definition.name), targets)
    groups = zip(
        membership.group_ids(places).to_pylist(),
        present.groups.column("broker").to_pylist(),
        numbers.to_pylist(),
        present.groups.column("members").to_pylist(),
        strict=True,
    )
    return [
        GroupLoad(group=group, broker=broker, load=bytes_of.get(number, 0) * members, members=members)
        for group, broker, number, members in groups
    ]


def _bytes(results: Results, targets: Any) -> Mapping[int, int]:
    """Return the bytes of the results in the newest runs, by number of the parameters.

    targets: target and number of parameters.
    """
    query = f"""SELECT {RUN}, {NUMBER}, max(n)::BIGINT AS n FROM (
            SELECT {RUN}, target, sum(strlen(record)) AS n FROM entries GROUP BY ALL
        ) JOIN targets USING (target) GROUP BY ALL"""
    parts = [selected(query, {"entries": rows, "targets": targets}) for rows in results.newest(LOOKED_BACK)]
    if not parts:
        return {}
    query = f"SELECT {NUMBER}, sum(n)::BIGINT AS n FROM parts GROUP BY ALL"
    whole = selected(query, {"parts": pa.concat_tables(parts)})
    return dict(zip(whole.column(NUMBER).to_pylist(), whole.column("n").to_pylist(), strict=True))
