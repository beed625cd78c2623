"""Fastly's purge API: `Fastly-Key`, up to 256 surrogate keys a request, single URLs, errors as `msg` and `detail`.

Documented at www.fastly.com/documentation/reference/api/purging, read 2026-11.
"""

from __future__ import annotations

from itertools import count

from tests.cdn_contracts.cache import Cache
from tests.cdn_contracts.serving import Received, Reply, TokenBucket, json_reply

TOKEN = "fastly-token-of-the-tests"
SERVICE = "SU1Z0isxPaozGVKXdv0eY"
MAX_KEYS = 256
MAX_KEY_BYTES = 1_024
MAX_FIELD_BYTES = 16_384
RESET_AT = 1_790_000_000


class FastlyContract:
    """Fields: token, revoked by setting it to another; bucket, the purges left in this hour; cache; soft, the softly purged."""

    def __init__(self) -> None:
        self.token = TOKEN
        self.bucket = TokenBucket(100_000, 100_000 / 3_600)
        self.cache = Cache("surrogate-key", " ", max_bytes=MAX_FIELD_BYTES)
        self.soft: list[str] = []
        self._ids = count(1)

    def answer(self, request: Received) -> Reply:
        if request.fields.get("fastly-key") != self.token:
            return json_reply(401, {"msg": "Provided credentials are missing or invalid"})
        if request.method != "POST":
            return json_reply(405, {"msg": "Method not allowed"})
        if request.path == f"/service/{SERVICE}/purge":
            return self._limited(request, self._keys(request))
        if request.path.startswith("/service/"):
            return json_reply(404, {"msg": "Record not found", "detail": "Cannot load service"})
        if request.path.startswith("/purge/"):
            return self._limited(request, [request.target.removeprefix("/purge/")])
        return json_reply(404, {"msg": "Not found"})

    def _keys(self, request: Received) -> list[str] | Reply:
        if request.fields.get("content-type") != "application/json":
            return json_reply(415, {"msg": "Unsupported media type"})
        body = request.json()
        keys = body.get("surrogate_keys") if isinstance(body, dict) else None
        if not isinstance(keys, list) or not keys or not all(isinstance(key, str) and key for key in keys):
            return json_reply(400, {"msg": "Bad request", "detail": "surrogate_keys must be a list of strings"})
        if len(keys) > MAX_KEYS:
            return json_reply(400, {"msg": "Bad request", "detail": f"no more than {MAX_KEYS} surrogate keys"})
        if any(" " in key or len(key) > MAX_KEY_BYTES for key in keys):
            return json_reply(
                400, {"msg": "Bad request", "detail": "a surrogate key has no blanks and 1024 bytes at most"}
            )
        return keys

    def _limited(self, request: Received, what: list[str] | Reply) -> Reply:
        if isinstance(what, Reply):
            return what
        taken = self.bucket.take(len(what))
        left = {"Fastly_RateLimit_Remaining": str(int(self.bucket.tokens)), "Fastly_RateLimit_Reset": str(RESET_AT)}
        if not taken:
            return json_reply(
                429, {"msg": "Too Many Requests"}, Retry_After=str(int(self.bucket.wait_s(len(what))) + 1), **left
            )
        if request.fields.get("fastly-soft-purge"):
            self.soft += what
        elif request.path.startswith("/purge/"):
            self.cache.purge_where(lambda url: url.split("://", 1)[1] in what)
            return json_reply(200, {"status": "ok", "id": f"108-{next(self._ids)}"}, **left)
        else:
            self.cache.purge_tags(what)
        return json_reply(200, {key: f"108-{next(self._ids)}" for key in what}, **left)
