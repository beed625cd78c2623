"""Declaration of a dashboard that the middleware mounts.

    QuaestorMiddleware(app, quaestor=quaestor, dashboard=Dashboard(token=AdminToken.load()))

See docs/dashboard.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from quaestor.admin.token import AdminToken
from quaestor.app import Quaestor
from quaestor.dashboard.app import DashboardApp, DashboardProcess, DashboardTokens, FolderViews
from quaestor.dashboard.applying import Applying
from quaestor.dashboard.canaries import Canaries
from quaestor.dashboard.channels import ChannelsView, has_channels
from quaestor.dashboard.continuous import ContinuousView
from quaestor.dashboard.live import LiveView
from quaestor.dashboard.process_report import ProcessReporter
from quaestor.dashboard.reports import SharedReports
from quaestor.dashboard.what_if import WhatIf
from quaestor.errors import ConfigurationError
from quaestor.ttl.published import PublishedParameters

PATH: Final = "/quaestor/dashboard"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """Dashboard of an app. Raises ConfigurationError for an invalid path.

    token: token of operators, who may look, try and apply.
    viewer_token: token of viewers, who may look and try.
    read_only: whether no client may apply anything.
    path: path of the dashboard; it hides the app's own routes there.
    """

    token: AdminToken
    viewer_token: AdminToken | None = None
    read_only: bool = False
    path: str = PATH

    def __post_init__(self) -> None:
        if not re.fullmatch(r"(/[A-Za-z0-9._~-]+)+", self.path):
            raise ConfigurationError(f"path={self.path!r} is no path like {PATH}: it starts with / and ends without")

    def mounted(self, engine: Quaestor) -> DashboardApp:
        """Dashboard's ASGI app for one Quaestor."""
        parts = engine.parts
        reporter = ProcessReporter(engine)
        reporter.begin()
        traces = parts.process.settings.observability.trace_file.replace("{pid}", "*")
        what_if = WhatIf(traces, delta_s=parts.process.settings.sketch.sketch_delta_s)
        applying = canaries = None
        if reporter.own is not None:
            published = PublishedParameters(parts.storage.layer, scope=parts.process.settings.scope)
            applying = Applying(published, own=reporter.own, clock=parts.process.clock)
            delta_ms = parts.process.settings.sketch.sketch_delta_s * 1_000
            canaries = Canaries(applying, parts.storage.canary_reports, what_if, delta_ms=delta_ms)
        shared = None
        if parts.storage.redis is not None:
            shared = SharedReports(parts.storage.redis, scope=parts.process.settings.scope)
        viewers = [token for token in (self.viewer_token, self.token if self.read_only else None) if token is not None]
        clock = parts.process.clock
        has = has_channels(parts.process.settings.continuous)
        channels, running = (parts.channels.administration, parts.channels.running) if has else (None, None)
        queries = parts.continuous.administration if parts.process.settings.continuous.continuous_folder else None
        return DashboardApp(
            path=self.path,
            tokens=DashboardTokens(operators=() if self.read_only else (self.token,), viewers=viewers),
            live=LiveView(
                reporter,
                shared,
                applying,
                canaries,
                telemetry=parts.process.telemetry,
                clock=parts.process.clock,
                supervisor=parts.process.supervisor,
            ),
            applying=applying,
            canaries=canaries,
            what_if=what_if,
            folder=FolderViews(
                queries=ContinuousView(queries, parts.process.telemetry, clock),
                channels=ChannelsView(channels, running, clock),
            ),
            process=DashboardProcess(parts.process.telemetry, parts.process.clock),
        )
