"""Souin in Caddy with the printed configuration: its API accepts purges by tag from clients with the token.

Source: github.com/darkweak/souin, 1.7.9, read 2026-11; `pkg/api/souin.go`, `pkg/surrogate/providers/common.go`.
A purge is the method PURGE on the API's path. The tags in `Surrogate-Key` are split at a comma and a blank.
The answer is always 204, with or without a match. Rules of storage and lifetimes: `pkg/middleware/middleware.go`.
"""

from __future__ import annotations

from collections.abc import Iterable
from email.utils import parsedate_to_datetime

from tests.cdn_contracts.cache import Cache
from tests.cdn_contracts.serving import HTML, Received, Reply, json_reply

TOKEN = "souin-token-of-the-tests"
API = "/souin-api/souin"
MAX_FIELDS_BYTES = 8_192
"""Go takes a megabyte; what stands before Caddy may not."""
DEFAULT_S = 1.0
"""`ttl` of the printed configuration."""


class SouinContract:
    """Fields: token, revoked by setting it to another; enabled, whether the API is on, else Caddy's own answers; cache."""

    def __init__(self) -> None:
        self.token = TOKEN
        self.enabled = True
        self.cache = Cache("surrogate-key", ", ")

    def answer(self, request: Received) -> Reply:
        trusted = request.fields.get("quaestor-purge-token") == self.token
        if request.method == "PURGE" and request.path == API and trusted:
            return self._api(request)
        if "/souin-api" in request.path or request.method == "PURGE":
            return Reply(403)
        return HTML

    def _api(self, request: Received) -> Reply:
        proof = {"quaestor-purged": "1"}
        if not self.enabled:
            return json_reply(404, {"error": f"resource not found: {API}"}, Quaestor_Purged="1")
        if sum(len(name) + len(value) + 4 for name, value in request.fields.items()) > MAX_FIELDS_BYTES:
            return Reply(431, b"", proof)
        self.cache.purge_tags(request.fields.get("surrogate-key", "").split(", "))
        return Reply(204, b"", proof)


def kept_s(headers: Iterable[tuple[bytes, bytes]], *, now_s: float) -> float:
    """Return how long Souin keeps an answer, in seconds.

    The first of four fields that is present decides; if that one names no lifetime, Expires does. Souin ignores Age.
    """
    fields = {name.decode().lower(): value.decode() for name, value in headers}
    said = next((fields[name] for name in _CONTROLS if fields.get(name)), "no-store")
    directives = dict(part.strip().partition("=")[::2] for part in said.split(","))
    if "no-store" in directives or "private" in directives:
        return 0.0
    for name in ("s-maxage", "max-age"):
        if name in directives:
            return float(directives[name])
    if "expires" in fields:
        return max(0.0, parsedate_to_datetime(fields["expires"]).timestamp() - now_s)
    return DEFAULT_S


_CONTROLS = ("souin-cache-control", "surrogate-control", "cdn-cache-control", "cache-control")
