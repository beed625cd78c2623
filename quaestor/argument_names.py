"""Unknown names of arguments: makes the sentence that reports them, with the nearest known name."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches


def unknown_name(taker: str, name: str, known: Collection[str]) -> str:
    """Return the sentence for one unknown argument: its name, and the nearest known name or all of them.

    taker: as a program writes the call, like `Quaestor()`.
    """
    nearest = get_close_matches(name, known, n=1)
    remedy = f"did you mean {nearest[0]!r}?" if nearest else f"known: {', '.join(sorted(known))}"
    return f"{taker} knows no argument {name!r}; {remedy}"
