"""JSON Patches (RFC 6902) between two answers, where a patch is shorter than the answer."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import TYPE_CHECKING

from quaestor.first_use import FirstUse
from quaestor.live.answers import FollowedAnswer

if TYPE_CHECKING:
    import jsonpatch
else:
    jsonpatch = FirstUse("jsonpatch")

LONGEST_BODY = 1024 * 1024
"""Longest body that is compared; longer ones are sent whole, because comparing takes longer than sending."""
_IN_A_THREAD = 16 * 1024
_SHORTEST_BODY = 128


async def patch(old: FollowedAnswer, new: FollowedAnswer) -> bytes | None:
    """Patch that turns one answer's value into the other's. None: there is none, or it saves nothing."""
    if not _comparable(old) or not _comparable(new):
        return None
    work = partial(_patch, old.body, new.body)
    if max(len(old.body), len(new.body)) <= _IN_A_THREAD:
        return work()
    return await asyncio.to_thread(work)


def _comparable(answer: FollowedAnswer) -> bool:
    kind = answer.content_type()
    return (
        answer.status == 200
        and (kind == "application/json" or kind.endswith("+json"))
        and _SHORTEST_BODY <= len(answer.body) <= LONGEST_BODY
    )


def _patch(old: bytes, new: bytes) -> bytes | None:
    try:
        made = jsonpatch.make_patch(json.loads(old), json.loads(new)).to_string()
    except (ValueError, RecursionError):
        return None
    encoded: bytes = made.encode()
    return encoded if len(encoded) < len(new) else None
