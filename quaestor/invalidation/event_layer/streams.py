"""Names of the pipelines and of the small values kept beside them.

`{}` is a Redis hash tag: what belongs to one partition has one slot. `<d>` is the deployment.
"""

from __future__ import annotations

from quaestor.invalidation.event_layer import offsets
from quaestor.model import Cell


def writes(deployment: str, write_partition: int) -> str:
    """After-images of the records of one write partition; read by its column of cells."""
    return f"quaestor:{{{deployment}:w{write_partition}}}:writes"


def queries(deployment: str, query_partition: int) -> str:
    """Registrations and cancellations of one query partition; read by its row of cells."""
    return f"quaestor:{{{deployment}:q{query_partition}}}:queries"


def matched(deployment: str, query_partition: int) -> str:
    """What the cells of one query partition found for its standing queries; read by its later stage."""
    return f"quaestor:{{{deployment}:q{query_partition}}}:matched"


def results(deployment: str, query_partition: int) -> str:
    """How the results of one query partition's standing queries change; read by the app processes that follow any."""
    return f"quaestor:{{{deployment}:q{query_partition}}}:results"


def notifications(deployment: str) -> str:
    """What the cells say; every app process reads all of it."""
    return f"quaestor:{{{deployment}:n}}:notifications"


def resume_position(deployment: str) -> str:
    """Value: where ingest has got to in the change stream."""
    return f"quaestor:{{{deployment}:n}}:ingest:position"


def checkpoint(deployment: str, cell: Cell) -> str:
    """Value: where a cell has got to in its two pipelines."""
    return f"quaestor:{{{deployment}:n}}:cell:{cell.query_partition}:{cell.write_partition}:checkpoint"


def process(deployment: str, cell: Cell) -> str:
    """Value: the process that runs a cell."""
    return f"quaestor:{{{deployment}:n}}:cell:{cell.query_partition}:{cell.write_partition}:process"


def stats(deployment: str, cell: Cell) -> str:
    """Value: what a cell says of itself, for people (see invalidation/stats.py)."""
    return f"quaestor:{{{deployment}:n}}:cell:{cell.query_partition}:{cell.write_partition}:stats"


def grid(deployment: str) -> str:
    """Value: the grid that was started last: its shape, and whether it was told to stop."""
    return f"quaestor:{{{deployment}:n}}:grid"


def stage_epoch(deployment: str, query_partition: int) -> str:
    """Value: when the stage of a query partition began last, by its own clock, and later than every stage before it."""
    return f"quaestor:{{{deployment}:q{query_partition}}}:stage:epoch"


def attended(deployment: str) -> str:
    """Value: offset in the notification pipeline up to which app processes have acted."""
    return f"quaestor:{{{deployment}:n}}:attended"


def epoch(deployment: str) -> str:
    """Value: the name of this life of the server's data; gone or changed if the data are."""
    return f"quaestor:{{{deployment}:n}}:epoch"


def missed(offset: str, first_offset: str | None) -> bool:
    """Whether a reader at `offset` may have missed entries, given EventLayer.first_offset as of after its last read.

    Trimming takes entries from the front, so as long as the entry last read is still there, so is all that follows.
    An offset that is no entry (a moment, or the beginning) asks for whatever is retained and misses nothing.
    """
    return first_offset is not None and offsets.is_entry(offset) and first_offset > offset
