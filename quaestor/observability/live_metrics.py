"""Metrics of live queries over sockets and HTTP."""

from __future__ import annotations

from quaestor.observability.families import Families
from quaestor.observability.vocabularies import LIVE_BEGINNINGS, LIVE_ENDS, LIVE_HTTP_ANSWERS, LIVE_REFUSALS


class LiveMetrics:
    """Sockets, their subscriptions and messages.

    connections: open sockets.
    subscriptions: subscriptions of all sockets.
    begun: subscriptions, by their beginning.
    ended: subscriptions, by the reason of their end.
    sent: messages to clients.
    refused: messages of clients that got an error as answer.
    overflows: times that a subscription's unsent events were dropped, because its client read too slowly.
    slow_readers: sockets that have been taking one message for more than a second.
    unsent: messages that wait in all outboxes.
    slow: sockets closed because their clients read too slowly.
    rejected: refused handshakes, by reason.
    http: answers over HTTP, by their content.
    polls: long polls that wait.
    """

    def __init__(self, families: Families) -> None:
        self.connections = families.gauge("live_connections", "open WebSockets of live queries")
        self.subscriptions = families.gauge("live_subscriptions", "subscriptions of all WebSockets")
        self.begun = families.counters("live_begun", "subscriptions by their beginning", outcome=LIVE_BEGINNINGS)
        self.ended = families.counters("live_ended", "subscriptions by the reason of their end", reason=LIVE_ENDS)
        self.overflows = families.counter(
            "live_overflows", "times that a slow subscription's unsent events were dropped"
        )
        self.slow_readers = families.gauge("live_slow_readers", "WebSockets that take a message for more than a second")
        self.unsent = families.gauge("live_unsent", "messages that wait for all WebSockets")
        self.sent = families.counter("live_messages", "messages to clients of live queries")
        self.refused = families.counter("live_refused", "messages of clients that got an error as answer")
        self.slow = families.counter("live_slow_clients", "WebSockets closed because their clients read too slowly")
        self.rejected = families.counters("live_rejected", "refused WebSocket handshakes", reason=LIVE_REFUSALS)
        self.http = families.counters("live_http", "answers of live queries over HTTP", outcome=LIVE_HTTP_ANSWERS)
        self.polls = families.gauge("live_polls", "long polls of live queries that wait")
