"""Telemetry of one Quaestor: its metrics by room, its log events, its spans.

Metric names are `quaestor_*` (docs/metrics.md lists them); log events are in docs/failure_modes.md and docs/observability.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quaestor.first_use import FirstUse
from quaestor.observability.channel_metrics import ChannelMetrics
from quaestor.observability.continuous_metrics import ContinuousMetrics
from quaestor.observability.event_log import EventLog
from quaestor.observability.families import Families
from quaestor.observability.feed_metrics import FeedMetrics
from quaestor.observability.follower_metrics import FollowerMetrics
from quaestor.observability.grid_metrics import GridMetrics
from quaestor.observability.invalidation_metrics import InvalidationMetrics
from quaestor.observability.live_metrics import LiveMetrics
from quaestor.observability.purge_metrics import PurgeMetrics
from quaestor.observability.request_metrics import RequestMetrics
from quaestor.observability.route_traffic import RouteTraffic
from quaestor.observability.service_metrics import ServiceMetrics
from quaestor.observability.sketch_metrics import SketchMetrics
from quaestor.observability.store_metrics import StoreMetrics
from quaestor.observability.subscription_metrics import SubscriptionMetrics
from quaestor.observability.table_metrics import TableMetrics
from quaestor.observability.tracing import Tracing
from quaestor.observability.ttl_metrics import TtlMetrics
from quaestor.observability.verification_metrics import VerificationMetrics

if TYPE_CHECKING:
    import prometheus_client
else:
    prometheus_client = FirstUse("prometheus_client")


class Telemetry(EventLog):
    """Telemetry with a metrics registry of its own, so that several Quaestors can live in one process.

    tracing: spans; off by default.
    families: the registry and the vocabularies of its labels.
    routes: traffic by route; no metric.
    requests, stores, sketch, invalidations, purging, grid, subscriptions, live, followers, ttl, verification, continuous,
        channels, feeds, services, tables: metrics by room.
    """

    def __init__(self, *, tracing: Tracing | None = None) -> None:
        self.tracing = tracing or Tracing()
        self.families = Families()
        super().__init__(self.families, self.tracing)
        self.requests = RequestMetrics(self.families, self.hooks.reads)
        self.routes = RouteTraffic()
        self.stores = StoreMetrics(self.families)
        self.invalidations = InvalidationMetrics(self.families)
        self.purging = PurgeMetrics(self.families)
        self.grid = GridMetrics(self.families)
        self.sketch = SketchMetrics(self.families)
        self.subscriptions = SubscriptionMetrics(self.families)
        self.live = LiveMetrics(self.families)
        self.followers = FollowerMetrics(self.families)
        self.ttl = TtlMetrics(self.families)
        self.verification = VerificationMetrics(self.families)
        self.continuous = ContinuousMetrics(self.families)
        self.feeds = FeedMetrics(self.families)
        self.channels = ChannelMetrics(self.families)
        self.services = ServiceMetrics(self.families)
        self.tables = TableMetrics(self.families)

    def exposition(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        return prometheus_client.generate_latest(self.families.registry)
