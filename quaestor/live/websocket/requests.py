"""Messages from clients: parsed and checked before anything else happens. Version 1 of the protocol and its extensions.

Source: Wingerath's thesis, appendix D. docs/live_queries.md lists the fields.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, ValidationInfo, field_validator

from quaestor.live.websocket.problems import ProtocolError

_ID: Final = Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_.:-]+$")
_TOKEN: Final = Field(default=None, max_length=16_384)
_MOST: Final = 2**31 - 1

Operation = Literal["any", "insert", "update", "delete", "none"]
MatchTypes = Literal["all", "match", "add", "change", "changeIndex", "remove"]


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Collation(BaseModel):
    """Rules by which strings compare, as MongoDB knows them."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    locale: str = Field(min_length=1, max_length=40)
    strength: int | None = Field(default=None, ge=1, le=5)
    caseLevel: bool | None = None  # noqa: N815 - the wire's name
    caseFirst: Literal["upper", "lower", "off"] | None = None  # noqa: N815 - the wire's name
    numericOrdering: bool | None = None  # noqa: N815 - the wire's name
    alternate: Literal["non-ignorable", "shifted"] | None = None
    maxVariable: Literal["punct", "space"] | None = None  # noqa: N815 - the wire's name
    backwards: bool | None = None
    normalization: bool | None = None


class Subscribe(_Message):
    """Beginning of a subscription, or with `offset_token` its continuation.

    id: names the subscription on this socket.
    token: credentials; None: those of the handshake.
    bucket: the collection.
    query, sort: Extended JSON as text.
    offset, limit: of a query with an order. limit 0 or None: none.
    pipeline: of an aggregation in place of a query, Extended JSON as text.
    collation: rules by which strings compare.
    matchTypes, operations: of the events that are sent.
    initial: whether the result is sent first.
    poll: ms between two readings of a result that is read again, at least; 0: as the server does.
    collapse: ms between two updates of one record, at least; negative: off.
    beforeImages: `match` carries `before`, the record as it was shown last.
    delta: `match` of a change carries `changes` in place of `data`.
    delivery: the least that is wanted: "state" or "exact".
    offset_token: of the newest message that the client has.
    """

    type: Literal["subscribe", "resume"]
    id: str = _ID
    token: str | None = _TOKEN
    bucket: str = Field(min_length=1, max_length=120)
    query: str = "{}"
    sort: str | None = None
    offset: int | None = Field(default=None, ge=0, le=_MOST)
    limit: int | None = Field(default=None, ge=0, le=_MOST)
    pipeline: str | None = None
    collation: Collation | None = None
    initial: bool = True
    operations: list[Operation] = Field(default=["any"], min_length=1, max_length=5)
    matchTypes: list[MatchTypes] = Field(default=["all"], min_length=1, max_length=6)  # noqa: N815 - the wire's name
    collapse: int = Field(default=-1, ge=-1, le=3_600_000)
    poll: int = Field(default=0, ge=0, le=3_600_000)
    beforeImages: bool = False  # noqa: N815 - the wire's name
    delta: bool = False
    delivery: Literal["state", "exact"] = "state"
    offset_token: str | None = Field(default=None, max_length=256)

    @field_validator("pipeline")
    @classmethod
    def _stands_alone(cls, pipeline: str | None, info: ValidationInfo) -> str | None:
        others = info.data.get("sort"), info.data.get("offset"), info.data.get("limit")
        if pipeline is not None and (
            info.data.get("query", "{}") != "{}" or any(other is not None for other in others)
        ):
            raise ValueError("stands in place of query, sort, offset and limit")
        return pipeline


class Unsubscribe(_Message):
    """End of a subscription."""

    type: Literal["unsubscribe"]
    id: str = _ID


class Token(_Message):
    """New credentials for the socket."""

    type: Literal["token"]
    id: str | None = Field(default=None, max_length=64)
    token: str | None = _TOKEN


class Ping(_Message):
    """Sign of life of a client, answered by `pong`.

    within: ms until the next one, at most. Browsers let hidden pages act once a minute only.
    """

    type: Literal["ping"]
    id: str | None = Field(default=None, max_length=64)
    within: int = Field(default=0, ge=0, le=600_000)


class Cut(_Message):
    """From now on all subscriptions of the socket advance together; `on` false: each by itself again."""

    type: Literal["cut"]
    id: str | None = Field(default=None, max_length=64)
    on: bool = True


Request = Subscribe | Unsubscribe | Token | Ping | Cut
REQUESTS: Final[TypeAdapter[Request]] = TypeAdapter(Annotated[Request, Field(discriminator="type")])


def parse_request(text: str | bytes) -> Request:
    """Message of a client. Raises ProtocolError (400) with the field and the reason."""
    try:
        return REQUESTS.validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"][1:]) or "message"
        raise ProtocolError(400, f"{place}: {first['msg']}", id=_id_of(text)) from None


def _id_of(text: str | bytes) -> str | None:
    """The subscription that a malformed message names, if it can be read."""
    try:
        named: Any = TypeAdapter(dict[str, Any]).validate_json(text).get("id")
    except ValidationError:
        return None
    return named if isinstance(named, str) and len(named) <= 64 else None
