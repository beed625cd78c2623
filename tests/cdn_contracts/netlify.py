"""Netlify's purge: Bearer token, `site_id` and `cache_tags`, 202.

Documented at docs.netlify.com (Caching overview, On-demand invalidation) and open-api.netlify.com (purgeCache), read 2026-11.
"""

from __future__ import annotations

from tests.cdn_contracts.cache import Cache
from tests.cdn_contracts.serving import Received, Reply, TokenBucket, json_reply

TOKEN = "nfp_token-of-the-tests"
SITE = "3970e0fe-8564-4903-9a55-c5f8de49fb8b"


class NetlifyContract:
    """Fields: token, revoked by setting it to another; bucket; cache."""

    def __init__(self) -> None:
        self.token = TOKEN
        self.bucket = TokenBucket(2, 2 / 5)
        self.cache = Cache("netlify-cache-tag", ",", max_tags=500, fold_case=True)

    def answer(self, request: Received) -> Reply:
        if request.fields.get("authorization") != f"Bearer {self.token}":
            return _error(401, "Access Denied: Invalid Personal Access Token")
        if request.path != "/api/v1/purge" or request.method != "POST":
            return _error(404, "Not Found")
        body = request.json()
        if not isinstance(body, dict) or body.get("site_id") != SITE:
            return _error(404, "Not Found")
        if not self.bucket.take():
            return _error(429, "Too many requests", Retry_After="5")
        tags = body.get("cache_tags")
        if tags is None:
            self.cache.purge_where(lambda url: True)
        elif not isinstance(tags, list) or not tags or any(not isinstance(tag, str) or "," in tag for tag in tags):
            return _error(400, "cache_tags is invalid")
        else:
            self.cache.purge_tags(tags)
        return Reply(202)


def _error(status: int, message: str, **fields: str) -> Reply:
    return json_reply(status, {"code": status, "message": message}, **fields)
