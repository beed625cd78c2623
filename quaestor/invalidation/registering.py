"""From captured reads to registrations: what the matching nodes must know of a result, and nothing more. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quaestor.invalidation.query.plan import QueryPlan, plan_query
from quaestor.model import CapturedRead, Document, Operation, Query, Registration, Version

SECONDARY_MARGIN_S = 2
"""How much further back a read on a secondary is dated, beside its own duration: its replies' operationTime is taken
after the scan, and batches are applied behind it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependency:
    """One distinct query of a response, planned, with the read that answered it."""

    query: Query
    plan: QueryPlan
    read: CapturedRead


def dependencies(reads: Sequence[CapturedRead]) -> list[Dependency]:
    """The distinct queries behind these reads.

    A query that was run twice counts once, dated by its older read: if the runs differ, a write came in between, and
    replaying from the older one finds it.
    """
    found: dict[str, Dependency] = {}
    for read in reads:
        plan = plan_query(read.query)
        _keep_older(found, Dependency(query=read.query, plan=plan, read=read))
    return list(found.values())


def _keep_older(found: dict[str, Dependency], dependency: Dependency) -> None:
    known = found.get(dependency.plan.query_id)
    if known is None or dependency.read.read_at < known.read.read_at:
        found[dependency.plan.query_id] = dependency


def registration(
    dependency: Dependency, *, registration_id: str, tenant: str, since: Version, expires_at_ms: int
) -> Registration:
    read = dependency.read
    members = _members(dependency.query, read.documents)
    return Registration(
        id=registration_id,
        tenant=tenant,
        query_id=dependency.plan.query_id,
        query=dependency.query,
        since=since if read.primary else min(since, _secondary_since(read)),
        read_at=read.read_at,
        members=members,
        last=None if members is None else _last(dependency.query, read.documents),
        expires_at_ms=expires_at_ms,
    )


def _secondary_since(read: CapturedRead) -> Version:
    seconds = (read.read_at >> 32) - int(read.duration_ms / 1000) - 1 - SECONDARY_MARGIN_S
    return max(0, seconds) << 32


def _members(query: Query, documents: Sequence[Document] | None) -> tuple[Any, ...] | None:
    if query.operation is not Operation.FIND or documents is None:
        return None
    if any("_id" not in document for document in documents):
        return None
    return tuple(document["_id"] for document in documents)


def _last(query: Query, documents: Sequence[Document] | None) -> Document | None:
    """The last member of a full window, reduced to its sort fields and _id."""
    if not query.sort or not query.limit or not documents or len(documents) < query.limit:
        return None
    fields = {path.split(".", 1)[0] for path, _ in query.sort} | {"_id"}
    if not all(_kept(query.projection, path) for path, _ in query.sort):
        return None
    last = documents[-1]
    return {field: last[field] for field in fields if field in last}


def _kept(projection: Mapping[str, Any] | None, path: str) -> bool:
    """Whether the projected record certainly shows this path as the stored record has it."""
    if not projection:
        return True
    field = path.split(".", 1)[0]
    switches = {key: value for key, value in projection.items() if isinstance(value, bool | int | float)}
    if len(switches) < len(projection):
        return False  # computed fields, $slice, $elemMatch: they may rename or cut what we need
    if field == "_id":
        return bool(switches.get("_id", True))
    if any(value for key, value in switches.items() if key != "_id"):
        return bool(switches.get(field))  # inclusion
    return all(key.split(".", 1)[0] != field for key in switches if key != "_id")  # exclusion
