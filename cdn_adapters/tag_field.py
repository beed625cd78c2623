"""Tags of an answer in the field of a place: within its budget, never cut in the middle. Pure.

The first tag is the answer's own and enough to purge it; the last tag is shared by all answers. Tags that do not fit are dropped
from the end of the tags in between. An answer therefore keeps the tags that its purges go by.
"""

from __future__ import annotations

from collections.abc import Sequence

from quaestor.cdn_adapters.capabilities import TagField
from quaestor.cdn_adapters.spelling import header_tag


def spelled(field: TagField, tag: str) -> str:
    """Spell a tag as this place wants it; equal for tags that the place does not distinguish."""
    text = header_tag(tag)
    return text if field.case_sensitive else text.lower()


def fitting(field: TagField, tags: Sequence[str]) -> tuple[str, ...]:
    """Return the spelled tags that fit, each once. The first and the last have precedence; the others follow in order."""
    wanted = list(dict.fromkeys(spelled(field, tag) for tag in tags))
    chosen: set[str] = set()
    left = field.budget_bytes
    for tag in [*wanted[:1], *wanted[-1:], *wanted[1:-1]]:
        size = len(tag) + (len(field.separator) if chosen else 0)
        if tag in chosen or len(tag) > field.max_tag_bytes or size > left or len(chosen) >= field.max_tags:
            continue
        chosen.add(tag)
        left -= size
    return tuple(tag for tag in wanted if tag in chosen)


def tag_headers(field: TagField | None, tags: Sequence[str]) -> list[tuple[bytes, bytes]]:
    """Return the field with the tags that fit; none for a place without tags, or if no tag fits."""
    if field is None:
        return []
    fitting_tags = fitting(field, tags)
    return [(field.name.encode("ascii"), field.separator.join(fitting_tags).encode("ascii"))] if fitting_tags else []
