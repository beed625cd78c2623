"""Surrogate tags: the keys by which CDNs know our responses."""

from __future__ import annotations

import xxhash


def tag(registration_id: str) -> str:
    """Return the surrogate key of the single response that this registration guards: short, because CDNs limit the header.

    A response is tagged with its own registration, not with its query. A purge can therefore never hit the copy that has
    already replaced it, and may be repeated freely.
    """
    return f"q{xxhash.xxh3_64_hexdigest(registration_id.encode())}"


def everything_tag(deployment: str) -> str:
    """Return the surrogate key of every response of a deployment, for purges when nothing can be trusted."""
    return f"quaestor-{deployment}"
