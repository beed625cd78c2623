"""Ids of registrations, `<origin>:<counter>#<hash of the query id>`: each id contains its query partition.

A renewable registration is `<origin>:<counter>.<round>#<hash>`. Cells treat each round as a registration of its own, which
fires once. Apps, stores and the dependency index know all rounds by the first one, round 0.

Entries of the shared store name registrations of other processes, some of them made when the grid had another number of
partitions. The hash gives the partition for any number of them. The origin gives the owner (event_layer/tenancy.py).
"""

from __future__ import annotations

import re
from typing import Final

from quaestor.event_layer.partitioning import partition_of_hash, query_hash

_SEPARATOR: Final = "#"
_DIGITS: Final = 16
_ROUND: Final = re.compile(rf"(?<=[0-9])\.([0-9]{{1,9}})({_SEPARATOR}[0-9a-f]{{{_DIGITS}}})\Z")


def id_for(origin: str, number: int, query_id: str) -> str:
    """Return an id for a registration of this query.

    origin: origin of the process that makes it.
    number: unique number within this origin.
    """
    return f"{origin}:{number}{_SEPARATOR}{query_hash(query_id):0{_DIGITS}x}"


def renewable(registration_id: str) -> str:
    """Return the first round of an id that id_for() made."""
    name, separator, digits = registration_id.rpartition(_SEPARATOR)
    return f"{name}.0{separator}{digits}"


def round_of(registration_id: str) -> int | None:
    """Return the round of a renewable registration, 0 or more; None for any other name."""
    parsed = _ROUND.search(registration_id)
    return None if parsed is None else int(parsed[1])


def in_round(registration_id: str, number: int) -> str:
    """Return the same registration in that round, 0 for the name that apps use; other names stay as they are."""
    return _ROUND.sub(lambda parsed: f".{number}{parsed[2]}", registration_id)


def partition_of(registration_id: str, partitions: int) -> int | None:
    """Return the query partition, 0..partitions-1, whose cells guard it; None if the id lacks it: then any may be needed.

    Equals partitioning.query_partition of its query. O(length of the id).
    """
    _, separator, digits = registration_id.rpartition(_SEPARATOR)
    if not separator or len(digits) != _DIGITS:
        return None
    try:
        return partition_of_hash(int(digits, 16), partitions)
    except ValueError:
        return None
