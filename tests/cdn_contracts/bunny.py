"""Bunny's purges: `AccessKey`, one tag or one URL a request, two token buckets of the account.

Documented at docs.bunny.net: /cdn/purge-cache, /docs/cdn-api-purge-rate-limits, /api-reference/core/purge/purge-url.
"""

from __future__ import annotations

import math

from tests.cdn_contracts.cache import Cache
from tests.cdn_contracts.serving import Received, Reply, TokenBucket, json_reply

KEY = "c24347cf-1bc0-4900-8d60-86b1c7701f53"
ZONE = 643475


class BunnyContract:
    """Fields: key, revoked by setting it to another; exact and prefix, the buckets; cache."""

    def __init__(self) -> None:
        self.key = KEY
        self.exact = TokenBucket(120, 5)
        self.prefix = TokenBucket(20, 0.5)
        self.cache = Cache("cdn-tag", ",", max_bytes=1_024)

    def answer(self, request: Received) -> Reply:
        if request.fields.get("accesskey") != self.key:
            return _error(401, "user.unauthorized", "The request authorization header is not valid.")
        if request.method != "POST":
            return _error(405, "method_not_allowed", "Method not allowed.")
        if request.path == f"/pullzone/{ZONE}/purgeCache":
            body = request.json() if request.body else {}
            tag = body.get("CacheTag") if isinstance(body, dict) else None
            if not isinstance(tag, str) or not tag:
                return _error(400, "validation_error", "everything would be purged: not part of this contract")
            return self._taken(self.exact) or self._purged_tag(tag)
        if request.path.startswith("/pullzone/"):
            return _error(404, "pullzone.not_found", "The requested Pull Zone was not found.")
        if request.path == "/purge":
            url = request.query.get("url", "")
            if "://" not in url:
                return _error(400, "purge.invalid_url", "The URL is not valid.")
            path = url.partition("?")[0]
            wide = "*" in url or (path.endswith("/") and request.query.get("exactPath") != "true")
            return self._taken(self.prefix if wide else self.exact) or self._purged_url(url, wide)
        return _error(404, "not_found", "Not found.")

    def _taken(self, bucket: TokenBucket) -> Reply | None:
        if bucket.take():
            return None
        wait = str(math.ceil(bucket.wait_s()))
        return json_reply(
            429, {"ErrorKey": "purge.rate_limit", "Message": "Purge rate limit exceeded."}, Retry_After=wait
        )

    def _purged_tag(self, tag: str) -> Reply:
        self.cache.purge_tags([tag])
        return Reply(204)

    def _purged_url(self, url: str, wide: bool) -> Reply:
        if wide:
            self.cache.purge_where(lambda kept: kept.startswith(url.rstrip("*")))
        else:
            self.cache.purge_urls([url])
        return Reply(200)


def _error(status: int, key: str, message: str) -> Reply:
    return json_reply(status, {"ErrorKey": key, "Field": "", "Message": message})
