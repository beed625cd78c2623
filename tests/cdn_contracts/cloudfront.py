"""CloudFront's invalidations: SigV4 recomputed, quantities and limits checked, asynchronous completion, errors in XML.

Documented at docs.aws.amazon.com/cloudfront (API_CreateInvalidation, InvalidationLimits, invalidation by tags), read 2026-11.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass
from itertools import count
from urllib.parse import urlsplit
from xml.etree import ElementTree

from tests.cdn_contracts.cache import Cache
from tests.cdn_contracts.serving import Received, Reply

ACCESS_KEY = "AKIDEXAMPLE"
SECRET_KEY = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
SESSION_TOKEN = "session-token-of-the-tests"
DISTRIBUTION = "EDFDVBD6EXAMPLE"
NAMESPACE = "http://cloudfront.amazonaws.com/doc/2020-05-31/"
MAX_IN_PROGRESS = 3_000
MAX_WILDCARDS = 15
_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/]+)/(?P<scope>[^,]+), SignedHeaders=(?P<fields>[^,]+), Signature=(?P<signature>\w+)"
)


@dataclass(slots=True)
class Invalidation:
    """An invalidation, in progress or completed."""

    paths: tuple[str, ...]
    reference: str
    completed: bool = False


class CloudFrontContract:
    """Fields: secret_key, revoked by setting it to another; tagged, whether there is a CacheTagConfig; invalidations; cache.

    complete: finish those in progress.
    """

    def __init__(self, *, tagged: bool = True) -> None:
        self.secret_key = SECRET_KEY
        self.tagged = tagged
        self.invalidations: dict[str, Invalidation] = {}
        self.throttle = 0
        self.cache = Cache("cache-tag", ",", max_tags=50, fold_case=True, cache_key=_path_of)
        self._ids = count(1)

    def complete(self) -> None:
        for invalidation in self.invalidations.values():
            if not invalidation.completed:
                invalidation.completed = True
                self._apply(invalidation.paths)

    def answer(self, request: Received) -> Reply:
        fault = signature_fault(request, self.secret_key)
        if fault is not None:
            return _error(403, *fault)
        if self.throttle:
            self.throttle -= 1
            return _error(400, "Throttling", "Rate exceeded")
        base = f"/2020-05-31/distribution/{DISTRIBUTION}/invalidation"
        if request.method == "POST" and request.path == base:
            return self._create(request)
        if request.method == "GET" and request.path.startswith(base + "/"):
            invalidation = self.invalidations.get(request.path.removeprefix(base + "/"))
            if invalidation is None:
                return _error(404, "NoSuchInvalidation", "The specified invalidation does not exist.")
            return _reply(200, request.path.removeprefix(base + "/"), invalidation)
        return _error(404, "NoSuchDistribution", "The specified distribution does not exist.")

    def _create(self, request: Received) -> Reply:
        root = ElementTree.fromstring(request.body)
        name = f"{{{NAMESPACE}}}"
        if root.tag != name + "InvalidationBatch":
            return _error(400, "MalformedXML", "The XML document is malformed.")
        paths = tuple(item.text or "" for item in root.findall(f"{name}Paths/{name}Items/{name}Path"))
        reference = root.findtext(name + "CallerReference")
        if not reference or root.findtext(f"{name}Paths/{name}Quantity") != str(len(paths)):
            return _error(400, "InconsistentQuantities", "The value of Quantity and the size of Items don't match.")
        bad = [path for path in paths if not _valid(path)]
        if bad or len(set(paths)) != len(paths):
            return _error(400, "InvalidArgument", "Your request contains one or more invalid invalidation paths.")
        for number, known in self.invalidations.items():
            if known.reference == reference:
                if known.paths == paths:
                    return _reply(201, number, known)
                return _error(400, "InvalidationBatchAlreadyExists", "CallerReference was used with other paths.")
        in_progress = [
            path
            for invalidation in self.invalidations.values()
            if not invalidation.completed
            for path in invalidation.paths
        ]
        wildcards = sum(path.endswith("*") for path in (*in_progress, *paths))
        if len(paths) > MAX_IN_PROGRESS:
            return _error(413, "BatchTooLarge", "Invalidation batch specified is too large.")
        if len(in_progress) + len(paths) > MAX_IN_PROGRESS or wildcards > MAX_WILDCARDS:
            return _error(400, "TooManyInvalidationsInProgress", "You have too many invalidations in progress.")
        number = f"I{next(self._ids):013d}"
        self.invalidations[number] = Invalidation(paths, reference)
        return _reply(201, number, self.invalidations[number])

    def _apply(self, paths: tuple[str, ...]) -> None:
        if self.tagged:
            self.cache.purge_tags(path[1:] for path in paths if path.startswith("#"))
        for path in paths:
            if path.endswith("*"):
                self.cache.purge_where(lambda kept, path=path: kept.startswith(path[:-1]))
            else:
                self.cache.purge_urls(["https://any" + path] if path.startswith("/") else [])


def signature_fault(request: Received, secret_key: str) -> tuple[str, str] | None:
    """Return the fault of a request's SigV4 signature, computed anew from the request's bytes."""
    match = _AUTHORIZATION.fullmatch(request.fields.get("authorization", ""))
    if match is None:
        return "MissingAuthenticationToken", "Request is missing Authentication Token"
    if match["key"] != ACCESS_KEY:
        return "InvalidClientTokenId", "The security token included in the request is invalid."
    names = match["fields"].split(";")
    if "host" not in names or "x-amz-date" not in names:
        return "SignatureDoesNotMatch", "host and x-amz-date must be signed."
    if request.fields.get("x-amz-security-token", SESSION_TOKEN) != SESSION_TOKEN:
        return "InvalidClientTokenId", "The security token included in the request is invalid."
    canonical = "\n".join(
        [
            request.method,
            request.path,
            urlsplit(request.target).query,
            *(f"{name}:{' '.join(request.fields[name].split())}" for name in names),
            "",
            match["fields"],
            hashlib.sha256(request.body).hexdigest(),
        ]
    )
    moment = request.fields["x-amz-date"]
    text = "\n".join(["AWS4-HMAC-SHA256", moment, match["scope"], hashlib.sha256(canonical.encode()).hexdigest()])
    day, region, service, end = match["scope"].split("/")
    if (service, end) != ("cloudfront", "aws4_request") or not moment.startswith(day):
        return "SignatureDoesNotMatch", "Credential should be scoped to correct service."
    key = f"AWS4{secret_key}".encode()
    for part in (day, region, service, end):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    if hmac.new(key, text.encode(), hashlib.sha256).hexdigest() != match["signature"]:
        return "SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided."
    return None


def _path_of(url: str) -> str:
    parts = urlsplit(url)
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def _valid(path: str) -> bool:
    if not path.isascii() or not path.isprintable() or " " in path:
        return False
    return path.startswith("/") or (path.startswith("#") and 1 < len(path) <= 257 and "," not in path)


def _reply(status: int, number: str, invalidation: Invalidation) -> Reply:
    items = "".join(f"<Path>{path.replace('&', '&amp;')}</Path>" for path in invalidation.paths)
    body = (
        f'<?xml version="1.0"?><Invalidation xmlns="{NAMESPACE}"><Id>{number}</Id>'
        f"<Status>{'Completed' if invalidation.completed else 'InProgress'}</Status>"
        f"<CreateTime>2026-11-23T04:00:00.000Z</CreateTime><InvalidationBatch><Paths>"
        f"<Quantity>{len(invalidation.paths)}</Quantity><Items>{items}</Items></Paths>"
        f"<CallerReference>{invalidation.reference}</CallerReference></InvalidationBatch></Invalidation>"
    )
    return Reply(status, body.encode(), {"content-type": "text/xml"})


def _error(status: int, code: str, message: str) -> Reply:
    body = (
        f'<?xml version="1.0"?><ErrorResponse xmlns="{NAMESPACE}"><Error><Type>Sender</Type><Code>{code}</Code>'
        f"<Message>{message}</Message></Error><RequestId>r-1</RequestId></ErrorResponse>"
    )
    return Reply(status, body.encode(), {"content-type": "text/xml"})
