"""Surrogate tags: the keys that CDNs know our responses by."""

from __future__ import annotations

import xxhash


def tag(registration_id: str) -> str:
    """The surrogate key of the one response that this registration guards: short, because CDNs limit the header.

    A response is tagged with its own registration, not with its query: purging it can never hit the copy that has
    already replaced it, so a purge may be repeated freely.
    """
    return f"q{xxhash.xxh3_64_hexdigest(registration_id.encode())}"


def everything_tag(deployment: str) -> str:
    """The surrogate key of every response of a deployment: purges all of it when nothing is known any more."""
    return f"quaestor-{deployment}"
