"""KeyCDN's purges: HTTP basic authentication with the key as user, DELETE with a JSON body, `status` in the body.

Documented at www.keycdn.com/api, read 2026-11; the length of `tags` by what its support said (drupal.org/node/2878035).
"""

from __future__ import annotations

import base64
import json

from tests.cdn_contracts.cache import Cache
from tests.cdn_contracts.serving import Received, Reply, TokenBucket, json_reply

KEY = "sk_prod_of_the_tests_zbSVNe8gVUMT"
ZONE = 12345
MAX_BODY_BYTES = 64 * 1_024
MAX_TAGS_CHARACTERS = 128


class KeyCdnContract:
    """Fields: key, revoked by setting it to another; bucket; cache."""

    def __init__(self) -> None:
        self.key = KEY
        self.bucket = TokenBucket(20, 20 / 60)
        self.cache = Cache("cache-tag", " ")

    def answer(self, request: Received) -> Reply:
        wanted = "Basic " + base64.b64encode(f"{self.key}:".encode()).decode()
        if request.fields.get("authorization") != wanted:
            return _reply(401, "error", "Authentication failed.")
        if not self.bucket.take():
            return _reply(429, "error", "Too many requests.")
        if len(request.body) > MAX_BODY_BYTES:
            return _reply(413, "error", "Maximum body size is 64 KB.")
        kind = {f"/zones/purgetag/{ZONE}.json": "tags", f"/zones/purgeurl/{ZONE}.json": "urls"}.get(request.path)
        if kind is None or request.method != "DELETE":
            return _reply(404, "error", "The requested item does not exist.")
        body = request.json()
        items = body.get(kind) if isinstance(body, dict) else None
        if not isinstance(items, list) or not items or not all(isinstance(item, str) and item for item in items):
            return _reply(400, "error", f"{kind} is missing.")
        if kind == "tags":
            if len(json.dumps(items, separators=(",", ":"))) > MAX_TAGS_CHARACTERS:
                return _reply(400, "error", "tags is too long.")
            self.cache.purge_tags(items)
        else:
            if any("://" in item for item in items):
                return _reply(400, "error", "urls are named without a scheme.")
            self.cache.purge_where(lambda url: url.split("://", 1)[1] in items)
        return _reply(200, "success", "Cache has been cleared for the given items.")


def _reply(status: int, outcome: str, description: str) -> Reply:
    return json_reply(status, {"status": outcome, "description": description})
