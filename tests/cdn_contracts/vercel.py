"""Vercel's purge by tag: Bearer token, 1 to 16 tags of 256 characters, `X-RateLimit-*`.

Documented at vercel.com/docs/rest-api/edge-cache and /docs/rest-api#rate-limits, read 2026-11. How many purges are allowed is not
published: this contract allows 30, and one a second after that.
"""

from __future__ import annotations

from tests.cdn_contracts.cache import Cache
from tests.cdn_contracts.serving import Received, Reply, TokenBucket, json_reply

TOKEN = "vercel-token-of-the-tests"
PROJECT, TEAM = "prj_SzBUtNC3uMfV8w", "team_1a2b3c4d5e6f7g8h9i0j1k2l"
RESET_AT = 1_790_000_000
MAX_TAGS = 16


class VercelContract:
    """Fields: token, revoked by setting it to another; bucket; cache; soft, what was invalidated."""

    def __init__(self) -> None:
        self.token = TOKEN
        self.bucket = TokenBucket(30, 1)
        self.cache = Cache("vercel-cache-tag", ",")
        self.soft: list[str] = []

    def answer(self, request: Received) -> Reply:
        if request.fields.get("authorization") != f"Bearer {self.token}":
            return _error(403, "forbidden", "Not authorized", invalidToken=True)
        actions = ("/v1/edge-cache/dangerously-delete-by-tags", "/v1/edge-cache/invalidate-by-tags")
        if request.path not in actions or request.method != "POST":
            return _error(404, "not_found", "The requested API endpoint was not found")
        if request.query.get("projectIdOrName") != PROJECT or request.query.get("teamId") not in (None, TEAM):
            return _error(404, "not_found", "Project not found")
        taken = self.bucket.take()
        limits = {
            "X_RateLimit_Limit": str(int(self.bucket.capacity)),
            "X_RateLimit_Remaining": str(int(self.bucket.tokens)),
            "X_RateLimit_Reset": str(RESET_AT),
        }
        if not taken:
            reply = _error(429, "rate_limited", "The rate limit of 30 exceeded for 'api-edge-cache'")
            return Reply(429, reply.body, reply.fields | {n.replace("_", "-"): v for n, v in limits.items()})
        body = request.json()
        tags = body.get("tags") if isinstance(body, dict) else None
        if not isinstance(tags, list) or not 1 <= len(tags) <= MAX_TAGS or any(not 0 < len(tag) <= 256 for tag in tags):
            return _error(
                400, "bad_request", f"Invalid request: `tags` should have 1 to {MAX_TAGS} items of 256 characters"
            )
        if request.path.endswith("invalidate-by-tags"):
            self.soft += tags
        else:
            self.cache.purge_tags(tags)
        return json_reply(200, None, **limits)


def _error(status: int, code: str, message: str, **more: object) -> Reply:
    return json_reply(status, {"error": {"code": code, "message": message} | more})
