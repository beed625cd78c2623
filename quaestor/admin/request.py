"""Request to the admin API or the dashboard: the parts that all of their endpoints have in common."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quaestor.middleware.interface import Receive, Scope

MAX_BODY_BYTES = 256 * 1024
BODY_TIMEOUT_S = 10.0


class Refused(Exception):  # noqa: N818  an answer, not a fault
    """Refusal of a call, with a status and a sentence."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Call of one endpoint.

    parameters: parameters of the query string, with every value of each.
    body: the decoded JSON; None without a body.
    """

    parameters: Mapping[str, Sequence[str]]
    body: Any = None

    def parameter(self, name: str) -> str | None:
        """Only value of a parameter; None if it is not there."""
        values = self.parameters.get(name, ())
        if len(values) > 1:
            raise Refused(400, f"{name} is given more than once")
        return values[0] if values else None

    def required(self, name: str) -> str:
        """Only value of a parameter. Raises Refused if it is missing."""
        value = self.parameter(name)
        if not value:
            raise Refused(400, f"{name} is missing")
        return value

    def only(self, *names: str) -> None:
        """Refuse parameters other than these."""
        if unknown := self.parameters.keys() - set(names):
            raise Refused(
                400, f"unknown parameter {', '.join(sorted(unknown))[:200]}; known: {', '.join(names) or 'none'}"
            )


async def json_body(scope: Scope, receive: Receive) -> Any:
    """Decoded JSON body of a request. Raises Refused if the body is not JSON, is too long, or arrives too slowly."""
    kinds = [value.partition(b";")[0].strip().lower() for name, value in scope["headers"] if name == b"content-type"]
    if kinds != [b"application/json"]:
        raise Refused(415, "The body is application/json.")
    collected = bytearray()
    more = True
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Refused(400, "The body broke off.")
                collected += message.get("body", b"")
                more = message.get("more_body", False)
                if len(collected) > MAX_BODY_BYTES:
                    raise Refused(413, f"The body has more than {MAX_BODY_BYTES} bytes.")
    except TimeoutError as error:
        raise Refused(408, "The body did not arrive in time.") from error
    try:
        return json.loads(collected)
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the body is not JSON: {error}"[:200]) from error
