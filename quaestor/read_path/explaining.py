"""The text of X-Quaestor-Explain, for people who wonder why an answer was or was not cached.

Only with the setting `debug_header`. The text holds names, never values: no filter value, cookie, audience or key. Its length
is bounded. An entry's part is made once, when it is stored; for an entry from another process the details are unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from quaestor.clock import End
from quaestor.errors import QueryError
from quaestor.model import CachedResponse, CapturedRead, Query, Uncacheable
from quaestor.observability.vocabularies import widening
from quaestor.planning.plan import plan_query
from quaestor.policy import DEFAULT, RoutePolicy
from quaestor.ports import Registered

MOST_BYTES = 2048
_MOST_QUERIES = 8
_MOST_NAMES = 8
_NAME_CHARACTERS = 64
_OF_CAPTURE = frozenset(reason.value for reason in Uncacheable)


def depends(reads: Sequence[CapturedRead], registered: Registered) -> str:
    """Return the queries behind an answer by shape, each with how its invalidation is judged. For Resident.explain.

    reads: as captured; used only if the registry does not report its own form of the queries.
    """
    shapes = list(dict.fromkeys(map(shape, registered.queries or [read.query for read in reads])))
    more = f" and {len(shapes) - _MOST_QUERIES} more" if len(shapes) > _MOST_QUERIES else ""
    again = f"; {registered.rechecked} rechecked before eviction" if registered.rechecked else ""
    return f"depends on {'; '.join(shapes[:_MOST_QUERIES])}{more}{again}; {', '.join(registered.ids[:_MOST_NAMES])}"


def shape(query: Query) -> str:
    """Return a query by the names in it, with how its invalidation is judged. No values."""
    said = f"{query.operation.value} on {query.namespace} by ({_names(query.filter)})"
    if query.pipeline:
        said += f" through ({_names(name for stage in query.pipeline for name in stage)})"
    if query.sort:
        said += f" sorted by ({_names(path for path, _ in query.sort)})"
    said += "".join(f", {name}" for name in ("skip", "limit") if getattr(query, name))
    try:
        plan = plan_query(query)
    except QueryError:
        return f"{said}: unreadable"
    judged = "exact" if plan.reason is None else f"widened ({widening(plan.reason)})"
    return f"{said}: {judged}, found by {plan.index}"


def entry(
    response: CachedResponse, policy: RoutePolicy, *, known: str, layer: str, browser_s: int, cdn_s: int, now_ms: int
) -> str:
    """Return the explanation of an answer from an entry.

    known: the text of depends(), if this process has stored the entry.
    """
    store_ms = response.fresh_until_ms - response.stored_at_ms
    return ". ".join(
        (
            f"from {layer}, stored {max(0, now_ms - response.stored_at_ms) // 1000} s ago",
            f"lives {store_ms} ms in the store, {cdn_s} s in CDNs, {browser_s} s in browsers"
            + (", then goes stale by the clock" if End.CLOCK in response.ends else ""),
            about(policy),
            known or "stored by another process, or by its own header fields",
        )
    )


def withheld(reasons: Sequence[str], detail: str, policy: RoutePolicy | None) -> str:
    """Return the explanation of an answer that was not stored. Error texts stay in the logs: they may quote anything."""
    said = f"not stored: {', '.join(reasons)}"
    if detail and _OF_CAPTURE.issuperset(reasons):
        said += f" ({detail})"
    return said if policy is None else f"{said}. {about(policy)}"


def about(policy: RoutePolicy) -> str:
    """Return the parts of the key, and where they were declared."""
    source = "declared" if policy.explicit else "default" if policy == DEFAULT else "read from the route's parameters"
    parts = ["method and URL" if policy.query is None else f"path and query ({_names(sorted(policy.query))})"]
    if policy.personal:
        parts.append(f"audience ({policy.sharing.value})")
    if policy.headers:
        parts.append(f"headers ({_names(name.decode('latin-1') for name in policy.headers)})")
    if policy.cookies:
        parts.append(f"cookies ({_names(policy.cookies)})")
    if policy.keyed_body:
        parts.append("body")
    return f"key: {', '.join(parts)}; sharing: {policy.sharing.value}; policy: {source}"


def field(text: str) -> bytes:
    """Return the text as a field value: printable ASCII on one line, of bounded length."""
    return "".join(c if " " <= c <= "~" else "?" for c in text[:MOST_BYTES]).encode("ascii")


def _names(names: Iterable[str]) -> str:
    listed = [str(name)[:_NAME_CHARACTERS] for name in names]
    return ", ".join(listed[:_MOST_NAMES] + (["..."] if len(listed) > _MOST_NAMES else []))
