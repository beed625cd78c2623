"""Akamai's Fast Purge v3: EdgeGrid signature recomputed, two token buckets, bodies of 50,000 bytes, problem details.

Documented at techdocs.akamai.com/purge-cache/reference and /developer/docs/authenticate-with-edgegrid, read 2026-11.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from itertools import count

from tests.cdn_contracts.cache import Cache
from tests.cdn_contracts.serving import Received, Reply, TokenBucket, json_reply

CLIENT_TOKEN = "akab-client-token-of-the-tests"
CLIENT_SECRET = "client-secret-of-the-tests="
ACCESS_TOKEN = "akab-access-token-of-the-tests"
MAX_BODY_BYTES = 50_000
NETWORKS = ("production", "staging")
_AUTHORIZATION = re.compile(
    r"(?P<unsigned>EG1-HMAC-SHA256 client_token=(?P<client>[^;]+);access_token=(?P<access>[^;]+);"
    r"timestamp=(?P<timestamp>\d{8}T\d\d:\d\d:\d\d\+0000);nonce=(?P<nonce>[^;]+);)signature=(?P<signature>.+)"
)
_TAG = re.compile(r"[A-Za-z0-9&'^\-$!`#%.+~_|]{1,128}")


class AkamaiContract:
    """Fields: client_secret, revoked by setting it to another; scheme, which is signed; buckets; cache; soft, the invalidated."""

    def __init__(self, scheme: str = "https") -> None:
        self.client_secret = CLIENT_SECRET
        self.scheme = scheme
        self.requests = TokenBucket(100, 50)
        self.objects = {"tag": TokenBucket(5_000, 500 / 60), "url": TokenBucket(10_000, 200)}
        self.cache = Cache("edge-cache-tag", ",", max_bytes=8_192, max_tags=128)
        self.soft: list[str] = []
        self._nonces: set[str] = set()
        self._ids = count(1)

    def answer(self, request: Received) -> Reply:
        fault = self._signature_fault(request)
        if fault is not None:
            return _problem(401, "Not authorized", fault)
        parts = request.path.split("/")
        if len(parts) != 6 or parts[1:3] != ["ccu", "v3"] or parts[3] not in ("invalidate", "delete"):
            return _problem(404, "Not found", request.path)
        kind, network = parts[4], parts[5]
        if kind not in self.objects or network not in NETWORKS:
            return _problem(404, "Not found", request.path)
        if request.method != "POST":
            return _problem(405, "Method not allowed", request.method)
        if len(request.body) > MAX_BODY_BYTES:
            return _problem(413, "Request entity too large", f"exceeds {MAX_BODY_BYTES} bytes")
        if not request.fields.get("content-type", "").startswith("application/json"):
            return _problem(415, "Unsupported media type", "application/json is expected")
        body = request.json()
        objects = body.get("objects") if isinstance(body, dict) else None
        if not isinstance(objects, list) or not objects or not all(isinstance(target, str) for target in objects):
            return _problem(400, "Bad request", "objects must be a list of strings")
        if kind == "tag" and any(not _TAG.fullmatch(target) for target in objects):
            return _problem(400, "Bad request", "invalid cache tag")
        return self._limited(parts[3], kind, objects)

    def _limited(self, action: str, kind: str, objects: list[str]) -> Reply:
        bucket = self.objects[kind]
        enough = self.requests.tokens >= 1 and bucket.tokens >= len(objects)
        what = "Rate Limit" if self.requests.tokens < 1 else f"{kind.upper()} Rate Limit"
        if enough:
            self.requests.take()
            bucket.take(len(objects))
        fields = {
            "X-Ratelimit-Remaining": str(int(self.requests.tokens)),
            "X-Ratelimit-Limit": str(int(self.requests.capacity)),
            "X-Ratelimit-Limit-Per-Second": f"{self.requests.per_s:.2f}",
            "X-Ratelimit-Remaining-Objects": str(int(bucket.tokens)),
            "X-Ratelimit-Limit-Objects": str(int(bucket.capacity)),
            "X-Ratelimit-Limit-Per-Second-Objects": f"{bucket.per_s:.2f}",
        }
        if not enough:
            reply = _problem(429, f"{what} exceeded", "")
            return Reply(reply.status, reply.body, reply.fields | fields)
        if action == "invalidate":
            self.soft += objects
        elif kind == "tag":
            self.cache.purge_tags(objects)
        else:
            self.cache.purge_urls(objects)
        number = next(self._ids)
        done = {
            "httpStatus": 201, "detail": "Request accepted", "estimatedSeconds": 5,
            "purgeId": f"e535071c-{number}", "supportId": f"17PY{number}",
        }  # fmt: skip
        reply = json_reply(201, done)
        return Reply(reply.status, reply.body, reply.fields | fields)

    def _signature_fault(self, request: Received) -> str | None:
        match = _AUTHORIZATION.fullmatch(request.fields.get("authorization", ""))
        if match is None:
            return "Inactive client token"
        if match["client"] != CLIENT_TOKEN or match["access"] != ACCESS_TOKEN:
            return "Inactive client token"
        if match["nonce"] in self._nonces:
            return "The nonce was used before"
        self._nonces.add(match["nonce"])
        content = _digest(hashlib.sha256(request.body).digest()) if request.method == "POST" and request.body else ""
        text = "\t".join(
            (request.method, self.scheme, request.fields["host"], request.target, "", content, match["unsigned"])
        )
        key = _digest(hmac.new(self.client_secret.encode(), match["timestamp"].encode(), hashlib.sha256).digest())
        if _digest(hmac.new(key.encode(), text.encode(), hashlib.sha256).digest()) != match["signature"]:
            return "The signature does not match"
        return None


def _digest(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _problem(status: int, title: str, detail: str) -> Reply:
    body = {"httpStatus": status, "title": title, "detail": detail, "supportId": "17PY0"}
    reply = json_reply(status, body)
    return Reply(status, reply.body, {"content-type": "application/api-problem+json"})
