"""What `quaestor status` says in one line of what is served."""

from __future__ import annotations

from typing import Any

import pytest

from quaestor.admin.status_text import text


@pytest.mark.parametrize(
    ("serving", "lagging", "said"),
    [
        (True, [], "yes"),
        (True, [1, 3], "yes, but for what query partition 1, 3 guards: it lags"),
        (False, [0], "no: everything goes to the handlers"),
        (False, [], "no: everything goes to the handlers"),
    ],
)
def test_what_is_left_out_is_named(serving: bool, lagging: list[int], said: str) -> None:
    status: dict[str, Any] = {
        "serving": serving, "lagging": lagging, "mode": "distributed", "deployment": "d", "grid": None, "counts": {},
        "registered_urls": 0,
    }  # fmt: skip
    first = text(status).splitlines()[0]
    assert first.split("  ", 1)[1].strip() == said
