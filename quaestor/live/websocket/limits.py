"""Limits of the WebSocket endpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from quaestor.errors import ConfigurationError
from quaestor.rest.limits import Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketLimits:
    """Limits of the sockets of one endpoint in one process.

    connections: sockets at once.
    connections_an_address: sockets at once from one client address.
    subscriptions: at once on one socket.
    message_bytes: of a client's message.
    messages_per_second: of one socket; twice as many at once. Beyond them the endpoint reads more slowly.
    rows: `offset` + `limit` of a query with an order, at most. Without `limit`: this less `offset`.
    rows_of: the same for some collections, by name.
    unordered_rows: rows of a query without an order, at most.
    waiting: events that one subscription may leave unsent. With more, the client receives the result anew.
    waiting_bytes: size of all messages that one socket may leave unsent. With more, its subscriptions receive their results
        anew.
    slow_s: seconds that one message may take to be sent. Then the socket is closed.
    silence_s: seconds without a message after which the socket of a client that sends `ping` is closed. `within` of its last
        `ping` is added.
    resume_s: seconds that a query without subscribers is still followed, for clients that come back.
    resume_events, resume_bytes: events of one query, and their size, that are kept for clients that come back.
    lingering: queries without subscribers that are still followed, at most.
    pipeline_stages: stages of a pipeline, with those of nested pipelines, at most; 0: clients follow filters only. A pipeline
        is executed again after writes, so permit it where clients are known.
    poll_interval_ms: the shortest `poll` of a client, and the unit of longer ones.
    query: limits of filters and sorts.
    """

    connections: int = 10_000
    connections_an_address: int = 1_000
    subscriptions: int = 100
    message_bytes: int = 64 * 1024
    messages_per_second: int = 100
    rows: int = 500
    rows_of: Mapping[str, int] = field(default_factory=dict)
    unordered_rows: int = 10_000
    waiting: int = 1_000
    waiting_bytes: int = 16 * 1024 * 1024
    slow_s: int = 30
    silence_s: int = 30
    resume_s: int = 60
    resume_events: int = 1_000
    resume_bytes: int = 1024 * 1024
    lingering: int = 1_000
    pipeline_stages: int = 0
    poll_interval_ms: int = 1_000
    query: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        numbers = [(limit.name, getattr(self, limit.name)) for limit in fields(self) if limit.type == "int"]
        numbers += [(f"rows_of[{name!r}]", value) for name, value in self.rows_of.items()]
        for name, value in numbers:
            least = 0 if name == "pipeline_stages" else 1
            if type(value) is not int or value < least:
                raise ConfigurationError(f"SocketLimits.{name} must be an integer of at least {least}, not {value!r}")
