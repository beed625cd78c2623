"""AsyncAPI document of live queries, from the models of their messages.

Run: python docs/site/live_schema.py (writes docs/reference/live_queries.asyncapi.json).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from quaestor.live.websocket.answers import asyncapi

DOCUMENT: Final = Path(__file__).parents[1] / "reference/live_queries.asyncapi.json"


def text() -> str:
    """Return the document as it should be."""
    return json.dumps(asyncapi(), indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    DOCUMENT.write_text(text())
