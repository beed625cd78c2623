"""The names that an answer can be invalidated by, as one query on a collection that exists for this only. Pure.

A tag is a record: `invalidate(tags=["items"])` writes it, and every answer with that tag is registered as depending on it, like
on anything else that it read. So tags need no machinery of their own: races, several processes, restarts, CDNs and the Cache
Sketch are dealt with by what invalidates queries. The record is removed in the same breath: nothing piles up.
"""

from __future__ import annotations

from quaestor.model import CapturedRead, Operation, Query, Uncacheable, Version
from quaestor.read_path.key import Target
from quaestor.read_path.policy import RoutePolicy

MAX_TAG_CHARS = 200
MAX_TAGS = 64
"""In one declaration."""


def valid_tag(tag: str) -> str | None:
    """Why a tag cannot be used, or None."""
    if not tag or len(tag) > MAX_TAG_CHARS:
        return f"a tag has 1 to {MAX_TAG_CHARS} characters"
    if not tag.isprintable() or any(c in ' ,"' for c in tag):
        return "a tag has no spaces, commas, quotes or control characters"
    return None


def tag_name(deployment: str, tag: str) -> str:
    return f"{deployment} tag {tag}"


def url_name(deployment: str, url: str) -> str:
    """url: a resource (any host) or a key without its selection (this scheme and host only)."""
    return f"{deployment} url {url}"


def waived(policy: RoutePolicy, reason: Uncacheable) -> bool:
    """Whether a reason not to cache is answered by the declaration: that nothing was read from the database does not matter where
    somebody said how long the answer lives, by which tag it goes, or on what it depends."""
    return reason is Uncacheable.NO_READS and bool(policy.ttl_ms or policy.tags or policy.depends_on)


def declared_reads(
    policy: RoutePolicy, target: Target, *, deployment: str, namespace: str, since: Version
) -> tuple[CapturedRead, ...]:
    """What an answer depends on because its route says so, beside what its handler read.

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
