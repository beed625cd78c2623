"""Azure Front Door's purge: tokens of Entra ID, paths and domains, an operation to ask after, ARM's writes as bucket.

Documented at learn.microsoft.com/rest/api/frontdoorservice (AFD Endpoints - Purge Content), /azure/azure-resource-manager (async
operations, throttling) and /azure/frontdoor/standard-premium/how-to-cache-purge; read 2026-11.
"""

from __future__ import annotations

from itertools import count
from urllib.parse import parse_qs, urlsplit

from tests.cdn_contracts.cache import Cache
from tests.cdn_contracts.serving import Received, Reply, TokenBucket, json_reply

SUBSCRIPTION = "11111111-2222-3333-4444-555555555555"
GROUP, PROFILE, ENDPOINT = "shop-group", "shop-profile", "shop-endpoint"
TENANT = "99999999-8888-7777-6666-555555555555"
CLIENT_ID, CLIENT_SECRET = "client-of-the-tests", "client~secret.of-the-tests"
MAX_PATHS = 100
LIVES_S = 3_599


class AzureContract:
    """Fields: client_secret, revoked by setting it to another; tokens that are valid; bucket; operations; cache; url, its own."""

    def __init__(self) -> None:
        self.url = ""
        self.client_secret = CLIENT_SECRET
        self.tokens: set[str] = set()
        self.bucket = TokenBucket(200, 10)
        self.operations: dict[str, str] = {}
        self.cache = Cache("", ",", cache_key=lambda url: url.partition("?")[0].lower())
        self._purges: dict[str, tuple[list[str], list[str]]] = {}
        self._ids = count(1)

    def complete(self, status: str = "Succeeded") -> None:
        for name, now in self.operations.items():
            if now == "InProgress":
                self.operations[name] = status
                self._apply(*self._purges[name])

    def answer(self, request: Received) -> Reply:
        if request.path == f"/{TENANT}/oauth2/v2.0/token":
            return self._token(request)
        if request.fields.get("authorization", "").removeprefix("Bearer ") not in self.tokens:
            return _error(401, "InvalidAuthenticationToken", "The access token is invalid.")
        if "api-version" not in request.query:
            return _error(400, "MissingApiVersionParameter", "The api-version query parameter is required.")
        operations = f"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.Cdn/operationresults/"
        if request.method == "GET" and request.path.startswith(operations):
            status = self.operations.get(request.path.removeprefix(operations))
            return json_reply(200, {"status": status}) if status else _error(404, "NotFound", "No such operation.")
        wanted = (
            f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/providers/Microsoft.Cdn/profiles/{PROFILE}"
            f"/afdEndpoints/{ENDPOINT}/purge"
        )
        if request.path != wanted or request.method != "POST":
            return _error(404, "ResourceNotFound", "The resource was not found.")
        left = {"x_ms_ratelimit_remaining_subscription_writes": str(max(0, int(self.bucket.tokens) - 1))}
        if not self.bucket.take():
            return _error(
                429, "TooManyRequests", "Number of write requests exceeded the limit.", Retry_After="1", **left
            )
        body = request.json()
        paths = body.get("contentPaths") if isinstance(body, dict) else None
        domains = body.get("domains", []) if isinstance(body, dict) else []
        if not isinstance(paths, list) or not paths or any(not str(path).startswith("/") for path in paths):
            return _error(400, "BadRequest", "contentPaths must begin with /")
        if len(paths) > MAX_PATHS or any("*" in str(domain) for domain in domains):
            return _error(400, "BadRequest", f"no more than {MAX_PATHS} paths, and no wildcard domains")
        name = f"op-{next(self._ids)}"
        self.operations[name], self._purges[name] = "InProgress", (paths, domains)
        where = f"{self.url}{operations}{name}?api-version=2024-02-01"
        return Reply(202, b"", {"azure-asyncoperation": where, "location": where, "retry-after": "1"} | {
            name.replace("_", "-"): value for name, value in left.items()
        })  # fmt: skip

    def _token(self, request: Received) -> Reply:
        form = {name: values[0] for name, values in parse_qs(request.body.decode()).items()}
        if form.get("client_id") != CLIENT_ID or form.get("client_secret") != self.client_secret:
            said = f"AADSTS7000215: Invalid client secret provided for {form.get('client_id')}."
            return json_reply(401, {"error": "invalid_client", "error_description": said})
        if (
            form.get("grant_type") != "client_credentials"
            or form.get("scope") != "https://management.azure.com/.default"
        ):
            return json_reply(400, {"error": "invalid_request", "error_description": "AADSTS900144"})
        token = f"eyJ-token-of-the-tests-{next(self._ids)}"
        self.tokens.add(token)
        return json_reply(200, {"token_type": "Bearer", "expires_in": LIVES_S, "access_token": token})

    def _apply(self, paths: list[str], domains: list[str]) -> None:
        def gone(url: str) -> bool:
            parts = urlsplit(url)
            here = not domains or parts.hostname in {domain.lower() for domain in domains}
            return here and any(
                parts.path.startswith(path.lower()[:-1]) if path.endswith("*") else (parts.path or "/") == path.lower()
                for path in paths
            )

        self.cache.purge_where(gone)


def _error(status: int, code: str, message: str, **fields: str) -> Reply:
    return json_reply(status, {"error": {"code": code, "message": message}}, **fields)
