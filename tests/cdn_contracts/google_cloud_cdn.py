"""Google Cloud's urlMaps.invalidateCache: access tokens from a signed assertion, 10 tags a request, operations, 500 a minute.

Documented at cloud.google.com: /compute/docs/reference/rest/v1/urlMaps/invalidateCache, /cdn/docs/cache-invalidation-overview;
tokens: developers.google.com/identity/protocols/oauth2/service-account. Read 2026-11.
"""

from __future__ import annotations

import base64
import json
from itertools import count
from urllib.parse import parse_qs, urlsplit

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.cdn_contracts.cache import Cache
from tests.cdn_contracts.serving import Received, Reply, TokenBucket, json_reply

PROJECT = "shop-of-the-tests"
URL_MAP = "web-map"
EMAIL = f"purger@{PROJECT}.iam.gserviceaccount.com"
MAX_TAGS = 10
PRIVATE_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def service_account(url: str) -> str:
    """The JSON key of a service account whose tokens this contract gives, at this URL."""
    key = PRIVATE_KEY.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    return json.dumps(
        {
            "type": "service_account", "project_id": PROJECT, "private_key_id": "key-id-of-the-tests", "private_key": key,
            "client_email": EMAIL, "client_id": "1", "token_uri": f"{url}/token",
        }
    )  # fmt: skip


class GoogleContract:
    """Fields: tokens that are valid; bucket; cache; operations by name, whether each is done. complete: finish them."""

    def __init__(self) -> None:
        self.tokens: set[str] = set()
        self.trusted = True
        self.bucket = TokenBucket(500, 500 / 60)
        self.cache = Cache("cache-tag", ",", max_bytes=4_096, cache_key=lambda url: url.partition("?")[0])
        self.operations: dict[str, dict[str, object]] = {}
        self._rules: dict[str, dict[str, object]] = {}
        self._ids = count(1)

    def complete(self) -> None:
        for name, operation in self.operations.items():
            if operation["status"] != "DONE":
                operation["status"], operation["progress"] = "DONE", 100
                self._apply(self._rules[name])

    def answer(self, request: Received) -> Reply:
        if request.path == "/token":
            return self._token(request)
        if request.fields.get("authorization", "").removeprefix("Bearer ") not in self.tokens:
            return _error(401, "Request had invalid authentication credentials.", "authError")
        base = f"/compute/v1/projects/{PROJECT}/global"
        if request.method == "GET" and request.path.startswith(f"{base}/operations/"):
            operation = self.operations.get(request.path.rpartition("/")[2])
            return json_reply(200, operation) if operation else _error(404, "The operation was not found", "notFound")
        if request.path != f"{base}/urlMaps/{URL_MAP}/invalidateCache":
            return _error(404, f"The resource '{request.path}' was not found", "notFound")
        if not self.bucket.take():
            return _error(403, "Rate Limit Exceeded", "rateLimitExceeded")
        rule = request.json()
        if not isinstance(rule, dict) or not rule or set(rule) - {"cacheTags", "host", "path"}:
            return _error(400, "Invalid value for field 'resource'", "invalid")
        tags, path = rule.get("cacheTags", []), str(rule.get("path", "/"))
        if len(tags) > MAX_TAGS:
            return _error(400, f"Invalid value for field 'resource.cacheTags': no more than {MAX_TAGS} tags", "invalid")
        if not path.startswith("/") or "?" in path or "#" in path or "*" in path.removesuffix("/*"):
            return _error(400, "Invalid value for field 'resource.path'", "invalid")
        name = f"operation-{next(self._ids)}"
        self._rules[name] = rule
        self.operations[name] = {
            "kind": "compute#operation", "id": "1", "name": name, "operationType": "invalidateCache", "status": "PENDING",
            "progress": 0,
        }  # fmt: skip
        return json_reply(200, self.operations[name])

    def _token(self, request: Received) -> Reply:
        form = parse_qs(request.body.decode())
        if form.get("grant_type") != ["urn:ietf:params:oauth:grant-type:jwt-bearer"] or not self.trusted:
            return json_reply(400, {"error": "invalid_grant", "error_description": "Invalid JWT Signature."})
        signed, _, signature = form["assertion"][0].rpartition(".")
        try:
            PRIVATE_KEY.public_key().verify(_unpadded(signature), signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        except InvalidSignature:
            return json_reply(400, {"error": "invalid_grant", "error_description": "Invalid JWT Signature."})
        claims = json.loads(_unpadded(signed.partition(".")[2]))
        if claims["iss"] != EMAIL or urlsplit(claims["aud"]).path != "/token" or "compute" not in claims["scope"]:
            return json_reply(400, {"error": "invalid_scope"})
        token = f"ya29.token-of-the-tests-{next(self._ids)}"
        self.tokens.add(token)
        return json_reply(200, {"access_token": token, "expires_in": 3_599, "token_type": "Bearer"})

    def _apply(self, rule: dict[str, object]) -> None:
        tags = rule.get("cacheTags")
        if isinstance(tags, list) and tags:
            self.cache.purge_tags(tags)
            return
        host, path = rule.get("host"), str(rule.get("path", "/"))

        def gone(url: str) -> bool:
            parts = urlsplit(url)
            same = parts.path.startswith(path[:-1]) if path.endswith("/*") else (parts.path or "/") == path
            return same and (host is None or parts.hostname == host)

        self.cache.purge_where(gone)


def _unpadded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _error(status: int, message: str, reason: str) -> Reply:
    body = {
        "error": {
            "code": status,
            "message": message,
            "errors": [{"message": message, "domain": "global", "reason": reason}],
        }
    }
    return json_reply(status, body)
