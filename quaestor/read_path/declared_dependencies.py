"""Dependencies that a route declares: tags, URLs and further queries, as reads beside those of its handler. Pure."""

from __future__ import annotations

from quaestor.model import CapturedRead, Operation, Query, Uncacheable, Version
from quaestor.policy import RoutePolicy
from quaestor.read_path.key import Target
from quaestor.tags import tag_name, url_name


def waived(policy: RoutePolicy, reason: Uncacheable) -> bool:
    """Whether a reason not to cache is answered by the declaration: that nothing was read from the database, or by clients that
    are not listened to, does not matter where somebody said how long the answer lives, by which tag it goes, or on what it
    depends."""
    return reason in (Uncacheable.NO_READS, Uncacheable.UNCAPTURED) and bool(
        policy.ttl_ms or policy.tags or policy.depends_on
    )


def declared_reads(
    policy: RoutePolicy, target: Target, *, deployment: str, namespace: str, since: Version
) -> tuple[CapturedRead, ...]:
    """The reads that an answer depends on because its route says so, beside those of its handler.

    Members are not known, so any write that may concern them counts, from `since` on: what the handler saw.
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
