"""Ids of registrations, `<origin>:<counter>#<hash of the query id>`: each tells its query partition by itself.

Entries come out of the shared store and name registrations of other processes, some of them made when the grid had another number
of partitions. The hash tells the partition for any number of them; the origin tells whose it is (event_layer/tenancy.py).
"""

from __future__ import annotations

from typing import Final

from quaestor.event_layer.partitioning import partition_of_hash, query_hash

_SEPARATOR: Final = "#"
_DIGITS: Final = 16


def id_for(origin: str, number: int, query_id: str) -> str:
    """An id for a registration of this query.

    origin: of the process that makes it.
    number: unlike any other of this origin.
    """
    return f"{origin}:{number}{_SEPARATOR}{query_hash(query_id):0{_DIGITS}x}"


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
