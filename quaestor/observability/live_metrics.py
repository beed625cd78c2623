"""Metrics of live queries over sockets."""

from __future__ import annotations

from quaestor.observability.families import Families
from quaestor.observability.vocabularies import LIVE_BEGINNINGS, LIVE_REFUSALS


class LiveMetrics:
    """Sockets, their subscriptions and messages.

    connections: open sockets.
    subscriptions: subscriptions of all sockets.
    begun: subscriptions, by their beginning.
    sent: messages to clients.
    refused: messages of clients that got an error as answer.
    slow: sockets closed because their clients read too slowly.
    rejected: refused handshakes, by reason.
    """

    def __init__(self, families: Families) -> None:
        self.connections = families.gauge("live_connections", "open WebSockets of live queries")
        self.subscriptions = families.gauge("live_subscriptions", "subscriptions of all WebSockets")
        self.begun = families.counters("live_begun", "subscriptions by their beginning", outcome=LIVE_BEGINNINGS)
        self.sent = families.counter("live_messages", "messages to clients of live queries")
        self.refused = families.counter("live_refused", "messages of clients that got an error as answer")
        self.slow = families.counter("live_slow_clients", "WebSockets closed because their clients read too slowly")
        self.rejected = families.counters("live_rejected", "refused WebSocket handshakes", reason=LIVE_REFUSALS)
