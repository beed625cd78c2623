"""Order of the middlewares: a middleware inside the cache does not run on a hit. `middleware/order.py` knows which must run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from quaestor.doctor.diagnosis import Diagnosis, ok, warn

SUBJECT: Final = "middlewares"


def examined(inside: Any) -> Iterator[Diagnosis]:
    """Diagnoses of the order of one app's middlewares.

    inside: the app that the cache wraps.
    """
    from quaestor.middleware.order import standing_inside

    try:
        by_name = standing_inside(inside)
    except Exception as error:  # objects of other packages may raise anything
        yield warn(SUBJECT, f"what stands inside the cache cannot be looked at: {error!r}")
        return
    if not by_name:
        yield ok(SUBJECT, "none stands inside the cache")
    for name, misplaced in by_name.items():
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
