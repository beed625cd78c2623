"""Endpoint `GET /quaestor/canary` of the purge probe: an answer that CDNs may keep, new each time, so that a purge shows."""

from __future__ import annotations

import secrets

from quaestor.invalidation.effects.purge_probe import MARK, probe_tag
from quaestor.middleware.interface import Engine, RawHeaders, Send
from quaestor.ports import CdnAdapter, LifetimeCdn

LIVES_S = 60


class PurgeProbeEndpoint:
    """The endpoint of one middleware.

    cdn: the adapters whose CDNs may keep it.
    """

    def __init__(self, engine: Engine, cdn: tuple[CdnAdapter, ...]) -> None:
        self._engine = engine
        self._cdn = cdn

    async def __call__(self, method: str, send: Send) -> None:
        body = b"" if method == "HEAD" else secrets.token_hex(16).encode()
        now_ms = self._engine.read_path.clock()
        headers: RawHeaders = [
            (b"content-type", b"text/plain"),
            (b"cache-control", b"public, max-age=0, must-revalidate"),
            (b"cdn-cache-control", b"max-age=%d" % LIVES_S),
            (MARK.encode(), b"%d" % now_ms),
        ]
        for adapter in self._cdn:
            headers += adapter.response_headers((probe_tag(self._engine.settings.scope),))
            if isinstance(adapter, LifetimeCdn):
                headers += adapter.lifetime_headers(lives_s=LIVES_S, until_s=now_ms // 1000 + LIVES_S)
        if method not in ("GET", "HEAD"):
            await send({"type": "http.response.start", "status": 405, "headers": [(b"allow", b"GET, HEAD")]})
            await send({"type": "http.response.body", "body": b""})
            return
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})
