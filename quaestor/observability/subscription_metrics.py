"""Metrics of the results that this process follows."""

from __future__ import annotations

from quaestor.observability.families import Families


class SubscriptionMetrics:
    """Followed queries and their subscribers.

    queries: different queries.
    subscribers: live results.
    lag_s: lag of the slowest query.
    events: changes.
    wholes: results taken over as a whole.
    refused: queries that the grid gave up, or refused.
    stalled: queries whose results stand still.
    """

    def __init__(self, families: Families) -> None:
        self.queries = families.gauge("subscribed_queries", "different queries that this process follows")
        self.subscribers = families.gauge("subscribers", "live results held by this process")
        self.lag_s = families.gauge(
            "subscriptions_lag_seconds",
            "lag of the slowest followed result behind the database",
        )
        self.stalled = families.gauge("subscriptions_stalled", "followed queries whose results stand still")
        self.events = families.counter("subscription_events", "changes of followed results")
        self.wholes = families.counter("subscription_wholes", "followed results taken over as a whole")
        self.refused = families.counter("subscriptions_refused", "followed queries that the grid gave up, or refused")
