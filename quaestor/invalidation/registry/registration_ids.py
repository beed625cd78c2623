"""Ids of registrations, `<origin>:<counter>#<hash of the query id>`: each tells its query partition by itself.

One that can be renewed is `<origin>:<counter>.<round>#<hash>`: cells know each round as a registration of its own, which fires
once; apps, stores and the dependency index know all of them by the first, round 0.

Entries come out of the shared store and name registrations of other processes, some of them made when the grid had another number
of partitions. The hash tells the partition for any number of them; the origin tells whose it is (event_layer/tenancy.py).
"""

from __future__ import annotations

import re
from typing import Final

from quaestor.event_layer.partitioning import partition_of_hash, query_hash

_SEPARATOR: Final = "#"
_DIGITS: Final = 16
_ROUND: Final = re.compile(rf"(?<=[0-9])\.([0-9]{{1,9}})({_SEPARATOR}[0-9a-f]{{{_DIGITS}}})\Z")


def id_for(origin: str, number: int, query_id: str) -> str:
    """An id for a registration of this query.

    origin: of the process that makes it.
    number: unlike any other of this origin.
    """
    return f"{origin}:{number}{_SEPARATOR}{query_hash(query_id):0{_DIGITS}x}"


def renewable(registration_id: str) -> str:
    """The first round of an id that id_for() made."""
    name, separator, digits = registration_id.rpartition(_SEPARATOR)
    return f"{name}.0{separator}{digits}"


def round_of(registration_id: str) -> int | None:
    """The round of a registration that can be renewed, 0 or more; None of any other name."""
    parsed = _ROUND.search(registration_id)
    return None if parsed is None else int(parsed[1])


def in_round(registration_id: str, number: int) -> str:
    """The same registration in that round, 0 for the name that apps know it by; other names as they are."""
    return _ROUND.sub(lambda parsed: f".{number}{parsed[2]}", registration_id)


def partition_of(registration_id: str, partitions: int) -> int | None:
    """The query partition, 0..partitions-1, whose cells guard it; None if the id does not tell: then any may be needed.

    The same as matching.partitioning.query_partition of its query. O(length of the id).
    """
    _, separator, digits = registration_id.rpartition(_SEPARATOR)
    if not separator or len(digits) != _DIGITS:
        return None
    try:
        return partition_of_hash(int(digits, 16), partitions)
    except ValueError:
        return None
