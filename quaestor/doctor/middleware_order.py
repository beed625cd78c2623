"""Order of the middlewares: those inside the cache do not run on a hit. Which of them matter, `middleware/order.py` knows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from quaestor.doctor.diagnosis import Diagnosis, ok, warn

SUBJECT: Final = "middlewares"


def examined(inside: Any) -> Iterator[Diagnosis]:
    """The order of the middlewares of one app.

    inside: what the cache wraps.
    """
    from quaestor.middleware.order import standing_inside

    try:
        found = standing_inside(inside)
    except Exception as error:  # somebody else's objects are looked at
        yield warn(SUBJECT, f"what stands inside the cache cannot be looked at: {error!r}")
        return
    if not found:
        yield ok(SUBJECT, "none stands inside the cache")
    for name, misplaced in found.items():
        if misplaced is None:
            yield ok(SUBJECT, f"{name} stands inside the cache: it runs when a handler does, not on a hit")
        else:
            yield warn(
                SUBJECT,
                f"{name} ({misplaced.kind}) stands inside the cache and does not run on a hit: {misplaced.why}; let it stand "
                "around the cache, as what is added later does",
                "app.add_middleware(QuaestorMiddleware, quaestor=quaestor)  # first, and below it:",
                f"app.add_middleware({name}, ...)",
            )
