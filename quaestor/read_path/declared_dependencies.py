"""Dependencies that a route declares: tags, URLs and further queries, as reads beside those of its handler. Pure."""

from __future__ import annotations

from quaestor.model import CapturedRead, Operation, Query, Uncacheable, Version
from quaestor.policy import RoutePolicy
from quaestor.read_path.key import Target
from quaestor.tags import tag_name, url_name


def waived(policy: RoutePolicy, reason: Uncacheable) -> bool:
    """Whether a route's declaration overrides a reason not to cache. A missing or uncaptured read does not matter if the
    declaration gives a lifetime, a tag, or the queries that the answer depends on."""
    return reason in (Uncacheable.NO_READS, Uncacheable.UNCAPTURED) and bool(
        policy.ttl_ms or policy.tags or policy.depends_on
    )


def declared_reads(
    policy: RoutePolicy, target: Target, *, deployment: str, namespace: str, since: Version
) -> tuple[CapturedRead, ...]:
    """Return the reads that an answer depends on by its route's declaration, besides its handler's reads.

    Members are unknown, so every write since `since` that may concern them counts.
    """
    if not policy.explicit:
        return ()
    names = [tag_name(deployment, tag) for tag in policy.tags]
    names += [url_name(deployment, target.resource), url_name(deployment, target.key.partition("#")[0])]
    wanted = [(namespace, {"_id": {"$in": names}}), *policy.depends_on]
    return tuple(
        CapturedRead(query=Query(namespace=where, operation=Operation.FIND, filter=selected), read_at=since, ids=None)
        for where, selected in wanted
    )
