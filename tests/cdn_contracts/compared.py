"""Requests as what a provider sees of them, to compare ours with its own SDK's."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tests.cdn_contracts.serving import Received


def compared(request: Received, fields: Sequence[str]) -> dict[str, object]:
    """Method, target, the fields that mean something to the provider, and the body: as a value if it is JSON."""
    try:
        body: object = json.loads(request.body)
    except ValueError:
        body = request.body
    named = {name: request.fields.get(name) for name in fields}
    return {"method": request.method, "target": request.target, "body": body, "fields": named}
