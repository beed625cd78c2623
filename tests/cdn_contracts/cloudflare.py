"""Cloudflare's purge API: Bearer token, one kind a request, token buckets by plan, `success` and `errors` in the body.

Documented at developers.cloudflare.com/cache/how-to/purge-cache and /fundamentals/api/reference/limits, read 2026-11.
"""

from __future__ import annotations

import math
from urllib.parse import urlsplit

from tests.cdn_contracts.cache import Cache
from tests.cdn_contracts.serving import Received, Reply, TokenBucket, json_reply

TOKEN = "cloudflare-token-of-the-tests"
ZONE = "023e105f4ecef8ad9ca31a8372d0c353"
PLANS = {
    "free": (25, 5 / 60, 800),
    "pro": (25, 5.0, 1_500),
    "business": (50, 10.0, 1_500),
    "enterprise": (500, 50.0, 3_000),
}
"""Bucket and refill a second for tags, hosts and prefixes; URLs a second."""
MAX_OPERATIONS = 100
MAX_FILES_ENTERPRISE = 500
KINDS = ("files", "tags", "hosts", "prefixes", "purge_everything")


class CloudflareContract:
    """Fields: plan; token, revoked by setting it to another; bucket of tags, files of URLs, both for the account; cache."""

    def __init__(self, plan: str = "free") -> None:
        capacity, per_s, urls_per_s = PLANS[plan]
        self.plan = plan
        self.token = TOKEN
        self.bucket = TokenBucket(capacity, per_s)
        self.files = TokenBucket(urls_per_s, urls_per_s)
        self.cache = Cache("cache-tag", ",", max_bytes=16_384, fold_case=True)

    def answer(self, request: Received) -> Reply:
        if request.fields.get("authorization") != f"Bearer {self.token}":
            return _failed(401, 10000, "Authentication error")
        if request.path not in (f"/client/v4/zones/{ZONE}/purge_cache", f"/client/v4/zones/{ZONE}/invalidate_cache"):
            return _failed(404, 7003, f"Could not route to {request.path}, perhaps your object identifier is invalid?")
        if request.method != "POST":
            return _failed(405, 10405, "Method not allowed for this authentication scheme")
        body = request.json()
        kinds = [kind for kind in KINDS if kind in body] if isinstance(body, dict) else []
        if len(kinds) != 1 or len(body) != 1:  # type: ignore[arg-type]
            return _failed(400, 1012, "Request must contain only one of files, tags, hosts, prefixes, purge_everything")
        kind, items = kinds[0], body[kinds[0]]  # type: ignore[index]
        if kind == "purge_everything":
            return _failed(400, 1094, "not part of this contract")
        if not isinstance(items, list) or not items or not all(isinstance(item, str) and item for item in items):
            return _failed(400, 1014, f'"{kind}" must be an array of strings')
        most = MAX_FILES_ENTERPRISE if kind == "files" and self.plan == "enterprise" else MAX_OPERATIONS
        if len(items) > most:
            return _failed(400, 1094, f"Unable to purge: no more than {most} items in a request")
        return self._purged(kind, items)

    def _purged(self, kind: str, items: list[str]) -> Reply:
        bucket, tokens = (self.files, len(items)) if kind == "files" else (self.bucket, 1)
        taken = bucket.take(tokens)
        limits = {
            "Ratelimit": f'"purge";r={int(bucket.tokens)};t={math.ceil(bucket.wait_s(bucket.capacity))}',
            "Ratelimit_Policy": f'"purge";q={int(bucket.capacity)};w={math.ceil(bucket.capacity / bucket.per_s)}',
        }
        if not taken:
            wait = str(math.ceil(bucket.wait_s(tokens)))
            return _failed(429, 10429, "Too many purge requests", Retry_After=wait, **limits)
        if kind == "files":
            if any(not urlsplit(item).netloc for item in items):
                return _failed(400, 1016, "Invalid purge URL")
            self.cache.purge_urls(items)
        elif kind == "tags":
            self.cache.purge_tags(items)
        else:
            self.cache.purge_where(lambda url: any(_below(url, kind, item) for item in items))
        return json_reply(200, {"success": True, "errors": [], "messages": [], "result": {"id": ZONE}}, **limits)


def _below(url: str, kind: str, item: str) -> bool:
    bare = url.split("://", 1)[1]
    return bare.startswith(item) if kind == "prefixes" else urlsplit(url).hostname == item


def _failed(status: int, code: int, message: str, **fields: str) -> Reply:
    body = {"success": False, "errors": [{"code": code, "message": message}], "messages": [], "result": None}
    return json_reply(status, body, **fields)
