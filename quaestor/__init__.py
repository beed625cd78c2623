"""Quaestor: exact invalidation of cached MongoDB query results, in the app, the CDN and the browser.

An application imports everything from here, and adapters for CDNs from `quaestor.cdn_adapters` (docs/api.md). Names are imported
at first use: a process of the matching grid does not pay for the web part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quaestor.first_use import names_at_first_use

if TYPE_CHECKING:
    from quaestor.admin import AdminApi, AdminToken
    from quaestor.app import Quaestor
    from quaestor.caching import cache_policy, cached, cookie, header, per_role, per_user, private, public
    from quaestor.capture import uncacheable
    from quaestor.capture.now import Now
    from quaestor.client.id_lists import resolve, resolve_sync
    from quaestor.client.levels import Level
    from quaestor.client.live.http_live_query import HttpLiveQuery
    from quaestor.client.live.live_client import LiveClient
    from quaestor.client.live.streams import LiveEvent, LiveGap
    from quaestor.client.live.sync_live_client import SyncLiveClient
    from quaestor.client.sync_transport import QuaestorSyncTransport
    from quaestor.client.transport import QuaestorTransport
    from quaestor.dashboard import Dashboard
    from quaestor.errors import (
        CdnError,
        ConfigurationError,
        DatabaseError,
        DependencyError,
        EventLayerError,
        MalformedQueryError,
        QuaestorError,
        QueryError,
        SketchError,
        StoreError,
        SubscriptionError,
        UnsupportedQueryError,
    )
    from quaestor.incremental import ResultEvent, replay
    from quaestor.live.pages.endpoint import ContinuousResults
    from quaestor.live.results.routers import ChannelFeeds, ChannelResults
    from quaestor.live.websocket.endpoint import LiveQueries
    from quaestor.live.websocket.limits import SocketLimits
    from quaestor.live.websocket.principals import Grant
    from quaestor.middleware import BrowserClient, QuaestorMiddleware
    from quaestor.model import Operation, Query
    from quaestor.observability.hooks import FailureSeen, InvalidationDone, ReadAnswered
    from quaestor.policy import Live, Representation
    from quaestor.ports import CdnAdapter, LifetimeEstimator
    from quaestor.realtime.live import LiveResult, Whole
    from quaestor.realtime.notices import DeliveryChanged, DeliveryMode, Resumed, Resynchronized, Stalled, Step
    from quaestor.rest import Access, Action, CollectionAccess, Limits, Principal, QuaestorRouter, Rule
    from quaestor.settings import Settings
    from quaestor.statistics.reader import Write, writes

__all__ = [
    "Access",
    "Action",
    "AdminApi",
    "AdminToken",
    "BrowserClient",
    "CdnAdapter",
    "CdnError",
    "ChannelFeeds",
    "ChannelResults",
    "CollectionAccess",
    "ConfigurationError",
    "ContinuousResults",
    "Dashboard",
    "DatabaseError",
    "DeliveryChanged",
    "DeliveryMode",
    "DependencyError",
    "EventLayerError",
    "FailureSeen",
    "Grant",
    "HttpLiveQuery",
    "InvalidationDone",
    "Level",
    "LifetimeEstimator",
    "Limits",
    "Live",
    "LiveClient",
    "LiveEvent",
    "LiveGap",
    "LiveQueries",
    "LiveResult",
    "MalformedQueryError",
    "Now",
    "Operation",
    "Principal",
    "Quaestor",
    "QuaestorError",
    "QuaestorMiddleware",
    "QuaestorRouter",
    "QuaestorSyncTransport",
    "QuaestorTransport",
    "Query",
    "QueryError",
    "ReadAnswered",
    "Representation",
    "ResultEvent",
    "Resumed",
    "Resynchronized",
    "Rule",
    "Settings",
    "SketchError",
    "SocketLimits",
    "Stalled",
    "Step",
    "StoreError",
    "SubscriptionError",
    "SyncLiveClient",
    "UnsupportedQueryError",
    "Whole",
    "Write",
    "cache_policy",
    "cached",
    "cookie",
    "header",
    "per_role",
    "per_user",
    "private",
    "public",
    "replay",
    "resolve",
    "resolve_sync",
    "uncacheable",
    "writes",
]

_NAMES = {
    "quaestor.admin": "AdminApi AdminToken",
    "quaestor.app": "Quaestor",
    "quaestor.caching": "cache_policy cached cookie header per_role per_user private public",
    "quaestor.capture": "uncacheable",
    "quaestor.capture.now": "Now",
    "quaestor.client.id_lists": "resolve resolve_sync",
    "quaestor.client.levels": "Level",
    "quaestor.client.live.http_live_query": "HttpLiveQuery",
    "quaestor.client.live.live_client": "LiveClient",
    "quaestor.client.live.streams": "LiveEvent LiveGap",
    "quaestor.client.live.sync_live_client": "SyncLiveClient",
    "quaestor.client.sync_transport": "QuaestorSyncTransport",
    "quaestor.client.transport": "QuaestorTransport",
    "quaestor.dashboard": "Dashboard",
    "quaestor.errors": "CdnError ConfigurationError DatabaseError DependencyError EventLayerError MalformedQueryError "
    "QuaestorError QueryError SketchError StoreError SubscriptionError UnsupportedQueryError",
    "quaestor.incremental": "ResultEvent replay",
    "quaestor.live.pages.endpoint": "ContinuousResults",
    "quaestor.live.results.routers": "ChannelFeeds ChannelResults",
    "quaestor.live.websocket.endpoint": "LiveQueries",
    "quaestor.live.websocket.limits": "SocketLimits",
    "quaestor.live.websocket.principals": "Grant",
    "quaestor.middleware": "BrowserClient QuaestorMiddleware",
    "quaestor.model": "Operation Query",
    "quaestor.observability.hooks": "FailureSeen InvalidationDone ReadAnswered",
    "quaestor.policy": "Live Representation",
    "quaestor.ports": "CdnAdapter LifetimeEstimator",
    "quaestor.realtime.live": "LiveResult Whole",
    "quaestor.realtime.notices": "DeliveryChanged DeliveryMode Resumed Resynchronized Stalled Step",
    "quaestor.rest": "Access Action CollectionAccess Limits Principal QuaestorRouter Rule",
    "quaestor.settings": "Settings",
    "quaestor.statistics.reader": "Write writes",
}
__getattr__ = names_at_first_use(globals(), _NAMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
