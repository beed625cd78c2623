"""Messages of the server, as the protocol publishes them: the schema that the tests hold every message against."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from quaestor.live.websocket.requests import REQUESTS

Date = Annotated[
    str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$", description="ISO 8601, UTC, milliseconds")
]
Id = Annotated[str, Field(min_length=1, max_length=64, description="the subscription")]
Token = Annotated[str, Field(max_length=256, description="position behind the message, to be sent back as it is")]
ClusterTime = Annotated[
    str, Field(pattern=r"^\d+$", description="MongoDB's cluster time as one integer: seconds << 32 | increment")
]
VERSION: Final = "1.0.0"


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    date: Date


class Result(_Answer):
    """First message of a subscription. `data`: the records, if the client asked for them.

    `keys`: identities of the records, one for each, if some are not their `_id`s (pipelines only).
    """

    type: Literal["result"]
    id: Id
    delivery: Literal["exact", "state", "recomputed"]
    version: ClusterTime
    offset_token: Token
    data: list[Any] | None = None
    keys: list[Any] | None = None


class Changes(BaseModel):
    """Fields of a changed record."""

    model_config = ConfigDict(extra="forbid", strict=True)
    updated: dict[str, Any]
    removed: list[str]


class Match(_Answer):
    """Change of the result. `data`, or on request `key` and `changes`: the record as it is shown now.

    `key` comes with `data` too, if it is not the record's `_id`.
    """

    type: Literal["match"]
    id: Id
    matchType: Literal["add", "change", "changeIndex", "remove", "match"]  # noqa: N815 - the wire's name
    operation: Literal["insert", "update", "delete", "none"]
    index: int | None = Field(default=None, ge=0)
    previousIndex: int | None = Field(default=None, ge=0)  # noqa: N815 - the wire's name
    data: Any = None
    key: Any = None
    changes: Changes | None = None
    before: Any = None
    version: ClusterTime
    offset_token: Token


class Resumed(_Answer):
    """The events behind the client's token follow: `missed` is their number."""

    type: Literal["resumed"]
    id: Id
    missed: int = Field(ge=0)
    offset_token: Token


class Refreshed(_Answer):
    """Events are missing. A `result` follows."""

    type: Literal["refreshed"]
    id: Id
    reason: str


class Stale(_Answer):
    """The result may be outdated since then."""

    type: Literal["stale"]
    id: Id
    since: Date


class Fresh(_Answer):
    """The result is up to date again."""

    type: Literal["fresh"]
    id: Id
    fresh_as_of: Date


class Delivery(_Answer):
    """Another mode of delivery holds from now on."""

    type: Literal["delivery"]
    id: Id
    delivery: Literal["exact", "state"]


class Resynchronized(_Answer):
    """The next `events` matches are one difference."""

    type: Literal["resynchronized"]
    id: Id
    events: int = Field(ge=0)


class Pong(_Answer):
    """Answer to `ping`. `fresh_as_of`: every result of the socket contains all writes before then."""

    type: Literal["pong"]
    id: str | None
    fresh_as_of: Date | None = None


class CutReached(_Answer):
    """All results of the socket contain exactly the writes up to `version`."""

    type: Literal["cut"]
    id: None
    version: ClusterTime


class Problem(BaseModel):
    """Reason of an error, with the value that was wrong, and the remedy."""

    model_config = ConfigDict(extra="forbid", strict=True)
    message: str = Field(max_length=400)
    status: int = Field(ge=400, le=599)
    reason: str


class Error(_Answer):
    """End of a subscription, or refusal of a message."""

    type: Literal["error"]
    id: str | None
    error: Problem


Answer = Result | Match | Resumed | Refreshed | Stale | Fresh | Delivery | Resynchronized | Pong | CutReached | Error
ANSWERS: Final[TypeAdapter[Answer]] = TypeAdapter(Annotated[Answer, Field(discriminator="type")])


def asyncapi() -> dict[str, Any]:
    """The protocol as an AsyncAPI 3.0 document."""
    reference = "#/components/schemas/{model}"
    schemas: dict[str, Any] = {}
    messages: dict[str, dict[str, Any]] = {}
    for direction, adapter in (("client", REQUESTS), ("server", ANSWERS)):
        schema = adapter.json_schema(ref_template=reference)
        schemas |= schema["$defs"]
        messages[direction] = schema["discriminator"]["mapping"]
    named = {f"{side}-{name}": ref for side, by_name in messages.items() for name, ref in by_name.items()}

    def listed(side: str) -> list[dict[str, str]]:
        return [{"$ref": f"#/channels/live/messages/{side}-{name}"} for name in messages[side]]

    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Quaestor live queries",
            "version": VERSION,
            "description": "Live queries over one WebSocket, subprotocol quaestor.v1. See docs/live_queries.md.",
        },
        "defaultContentType": "application/json",
        "channels": {
            "live": {
                "address": "/live",
                "messages": {name: {"name": name, "payload": {"$ref": ref}} for name, ref in named.items()},
            }
        },
        "operations": {
            "fromClient": {"action": "receive", "channel": {"$ref": "#/channels/live"}, "messages": listed("client")},
            "toClient": {"action": "send", "channel": {"$ref": "#/channels/live"}, "messages": listed("server")},
        },
        "components": {"schemas": schemas},
    }
