"""The names that an answer can be invalidated by, as one query on a collection that exists for this only. Pure.

A tag is a record that `invalidate(tags=["items"])` writes. Every answer with that tag is registered as depending on the record,
as on any other read. Tags therefore need no code of their own for races, several processes, restarts, CDNs and the Cache Sketch.
The call removes the record again, so none remain.
"""

from __future__ import annotations

MAX_TAG_CHARS = 200
MAX_TAGS = 64
"""In one declaration."""


def valid_tag(tag: str) -> str | None:
    """The reason why a tag cannot be used, or None."""
    if not tag or len(tag) > MAX_TAG_CHARS:
        return f"a tag has 1 to {MAX_TAG_CHARS} characters"
    if not tag.isprintable() or any(c in ' ,"' for c in tag):
        return "a tag has no spaces, commas, quotes or control characters"
    return None


def tag_name(deployment: str, tag: str) -> str:
    """The `_id` of the record that stands for a tag."""
    return f"{deployment} tag {tag}"


def url_name(deployment: str, url: str) -> str:
    """The `_id` of the record that stands for a URL.

    url: a resource (any host) or a key without its selection (this scheme and host only).
    """
    return f"{deployment} url {url}"
