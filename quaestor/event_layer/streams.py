"""Names of the pipelines and of the small values beside them.

`{}` is a Redis hash tag: all names of one partition have one slot. `<d>` is the deployment. The generation counts the
re-partitionings of the grid (see invalidation/grid/resizing); the names of generation 0 leave it out.
"""

from __future__ import annotations

from quaestor.event_layer import offsets
from quaestor.model import Cell


def _of(generation: int) -> str:
    return f"g{generation}:" if generation else ""


def _tenant(deployment: str, tenant: str | None) -> str:
    return f"{deployment}:n" if tenant in (None, deployment) else f"{deployment}:n:{tenant}"


def _cell(deployment: str, cell: Cell, generation: int) -> str:
    return f"quaestor:{{{deployment}:n}}:{_of(generation)}cell:{cell.query_partition}:{cell.write_partition}"


def writes(deployment: str, write_partition: int, generation: int = 0) -> str:
    """After-images of the records of one write partition; read by its column of cells."""
    return f"quaestor:{{{deployment}:{_of(generation)}w{write_partition}}}:writes"


def early_writes(deployment: str, write_partition: int, generation: int = 0) -> str:
    """After-images ahead of a backlog in `writes`, where each comes again; see invalidation/ingest/overtaking.py."""
    return f"quaestor:{{{deployment}:{_of(generation)}w{write_partition}}}:early"


def queries(deployment: str, query_partition: int, generation: int = 0) -> str:
    """Registrations and cancellations of one query partition; read by its row of cells."""
    return f"quaestor:{{{deployment}:{_of(generation)}q{query_partition}}}:queries"


def matched(deployment: str, query_partition: int, generation: int = 0) -> str:
    """Pipeline of writes that the cells of a query partition matched for its standing queries; read by its later stage."""
    return f"quaestor:{{{deployment}:{_of(generation)}q{query_partition}}}:matched"


def results(deployment: str, query_partition: int, generation: int = 0) -> str:
    """Pipeline of changes to the results of one query partition's standing queries.

    Read by the app processes that follow any.
    """
    return f"quaestor:{{{deployment}:{_of(generation)}q{query_partition}}}:results"


def notifications(deployment: str, tenant: str | None = None) -> str:
    """Pipeline of all cells' notifications to one tenant (None: the one named like the deployment).

    Each of its app processes reads all of it.
    """
    return f"quaestor:{{{_tenant(deployment, tenant)}}}:notifications"


def heartbeats(deployment: str) -> str:
    """Heartbeats of all cells, for tenants whose own pipeline does not carry them."""
    return f"quaestor:{{{deployment}:n}}:heartbeats"


def resume_position(deployment: str, generation: int = 0) -> str:
    """Value: position of ingest in the change stream."""
    return f"quaestor:{{{deployment}:n}}:{_of(generation)}ingest:position"


def handover(deployment: str, generation: int) -> str:
    """Value: progress of this generation's takeover from those before it (see invalidation/grid/resizing)."""
    return f"quaestor:{{{deployment}:n}}:{_of(generation)}handover"


def fence(deployment: str, query_partition: int, generation: int) -> str:
    """Value: present once a fence was trimmed from this query pipeline, whose cells then activate nothing any more."""
    return f"quaestor:{{{deployment}:{_of(generation)}q{query_partition}}}:fence"


def presence(deployment: str, cell: Cell, generation: int) -> str:
    """Value: present once this cell of a new generation runs."""
    return f"{_cell(deployment, cell, generation)}:present"


def checkpoint(deployment: str, cell: Cell, generation: int = 0) -> str:
    """Value: position of a cell in its two pipelines."""
    return f"{_cell(deployment, cell, generation)}:checkpoint"


def process(deployment: str, cell: Cell, generation: int = 0) -> str:
    """Value: the process that runs a cell."""
    return f"{_cell(deployment, cell, generation)}:process"


def stats(deployment: str, cell: Cell, generation: int = 0) -> str:
    """Value: figures of a cell, for operators (see invalidation/grid/cell_stats.py)."""
    return f"{_cell(deployment, cell, generation)}:stats"


def grid(deployment: str) -> str:
    """Value: the grid that was started last: its shape, and whether it was ordered to stop."""
    return f"quaestor:{{{deployment}:n}}:grid"


def leader(deployment: str) -> str:
    """Lease: the app process that runs the grid, while there is no other grid (see invalidation/grid/election.py)."""
    return f"quaestor:{{{deployment}:n}}:leader"


def filler(deployment: str) -> str:
    """Lease: the process that fills the tables (see tables/filling.py)."""
    return f"quaestor:{{{deployment}:n}}:filler"


def claims(deployment: str, generation: int) -> str:
    """Pipeline of the grids that claim this generation; the first claimant owns it."""
    return f"quaestor:{{{deployment}:n}}:{_of(generation)}claims"


def stage_epoch(deployment: str, query_partition: int) -> str:
    """Value: start of a query partition's latest stage, by its own clock, and later than every stage before it."""
    return f"quaestor:{{{deployment}:q{query_partition}}}:stage:epoch"


def stage_stats(deployment: str, query_partition: int, generation: int = 0) -> str:
    """Value: figures of the stage of a query partition, for operators (see realtime/stats.py)."""
    return f"quaestor:{{{deployment}:{_of(generation)}q{query_partition}}}:stage:stats"


def attended(deployment: str, tenant: str | None = None) -> str:
    """Value: offset in the tenant's notification pipeline up to which its app processes have acted."""
    return f"quaestor:{{{_tenant(deployment, tenant)}}}:attended"


def awaited(deployment: str) -> str:
    """Value: time until which app processes wait for their own writes (see invalidation/ingest/prompt_ticks.py)."""
    return f"quaestor:{{{deployment}:n}}:awaited"


def epoch(deployment: str) -> str:
    """Value that names the server's data epoch; it is gone or changed when the data are lost."""
    return f"quaestor:{{{deployment}:n}}:epoch"


def parts(deployment: str) -> str:
    """Set, on a cluster: the hash tags of all pipelines and values used in this data epoch (see data_epoch.py)."""
    return f"quaestor:{{{deployment}:n}}:parts"


def tag_of(name: str) -> str:
    """Return the hash tag of a name, which decides its place in a cluster."""
    opened = name.find("{") + 1
    closed = name.find("}", opened)
    return name[opened:closed] if 0 < opened < closed else name


def epoch_beside(tag: str) -> str:
    """Value that names the data epoch of a part with this tag."""
    return f"quaestor:{{{tag}}}:epoch"


def missed(offset: str, first_offset: str | None) -> bool:
    """Whether a reader at `offset` may have missed entries, given EventLayer.first_offset after its last read.

    Trimming takes entries from the front. While the entry last read still exists, so do all that follow. An offset that is
    no entry (a time, or the beginning) requests all retained entries, and misses nothing.
    """
    return first_offset is not None and offsets.is_entry(offset) and first_offset > offset
