"""CloudFront: invalidations by path, or by tag where the distribution has a CacheTagConfig; signed by botocore.

API: docs.aws.amazon.com/cloudfront (CreateInvalidation); limits read 2026-11. Tested on its contract, not on AWS. Needs the extra
`cloudfront`.
"""

from __future__ import annotations

import asyncio
import logging
import re
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final
from urllib.parse import quote, urlsplit
from xml.sax.saxutils import escape

import httpx
from pydantic import SecretStr

from quaestor.cdn_adapters.answers import Accepted, Answer, Delivered, Rejected, Throttled
from quaestor.cdn_adapters.capabilities import EVERYTHING, TAG, URL, Capabilities, Cost, Owner, Rate, TagField
from quaestor.cdn_adapters.extras import imported
from quaestor.cdn_adapters.hosted import AsynchronousPlace, checked_name, no_success, retry_after_s
from quaestor.cdn_adapters.place import Target
from quaestor.cdn_adapters.secret_settings import secret, without
from quaestor.errors import CdnError, ConfigurationError

_NAMESPACE: Final = "http://cloudfront.amazonaws.com/doc/2020-05-31/"
_IN_PATHS: Final = "/%?&=+,;:@!$'()~-._*"
_CODE = re.compile(r"<Code>(\w+)</Code>")
_MESSAGE = re.compile(r"<Message>([^<]*)</Message>")
_ID = re.compile(r"<Id>([A-Za-z0-9]+)</Id>")
_STATUS = re.compile(r"<Status>(\w+)</Status>")
_TOO_MANY: Final = frozenset(
    {"TooManyInvalidationsInProgress", "Throttling", "ThrottlingException", "RequestLimitExceeded"}
)
_CREDENTIALS: Final = frozenset(
    {"AccessDenied", "InvalidClientTokenId", "SignatureDoesNotMatch", "ExpiredToken", "MissingAuthenticationToken"}
)


class CloudFront(AsynchronousPlace):
    """A CloudFront distribution. Implements Place.

    distribution: its id.
    access_key, secret_key, session_token: None: the credentials that botocore finds (environment, profile, role).
    tags: whether the distribution has a CacheTagConfig with `tag_header`; without one, AWS ignores invalidations by tag silently.
    tag_header: the field that the CacheTagConfig names.
    account: name of the AWS account whose invalidations are billed together; by default the distribution.
    tiered: whether purges are repeated.
    base_url, timeout_s: of the API.
    reference: makes CallerReferences, each different; replaced in tests.

    Paths are invalidated on every host of the distribution. 1,000 paths or tags a month are free; the others have a price.
    """

    name = "cloudfront"

    def __init__(
        self,
        distribution: str,
        *,
        access_key: str | None = None,
        secret_key: str | SecretStr | None = None,
        session_token: str | SecretStr | None = None,
        tags: bool = False,
        tag_header: str = "cache-tag",
        account: str | None = None,
        tiered: bool = False,
        base_url: str = "https://cloudfront.amazonaws.com",
        timeout_s: float = 10.0,
        reference: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        if (access_key is None) != (secret_key is None):
            raise ConfigurationError("CloudFront: access_key and secret_key go together; give both, or neither")
        key = None if secret_key is None else secret(secret_key, "CloudFront's secret_key")
        token = None if session_token is None else secret(session_token, "CloudFront's session_token")
        self._credentials = _credentials(access_key, key, token)
        self._distribution = checked_name(distribution, "CloudFront's distribution")
        self._reference = reference
        super().__init__(
            address=distribution,
            base_url=base_url,
            timeout_s=timeout_s,
            secrets=tuple(credential for credential in (key, token) if credential is not None),
        )
        field = TagField(
            name=tag_header.lower(), separator=",", max_tags=50, max_tag_bytes=256, case_sensitive=False
        )  # fmt: skip
        self.capabilities = Capabilities(
            kinds=(TAG, URL, EVERYTHING) if tags else (URL, EVERYTHING),
            batch={TAG: 1_000, URL: 1_000},
            batch_bytes=500_000,
            tag_field=field if tags else None,
            # Our guess: AWS publishes no rate. Its refusals decide.
            rates=(Rate(bucket=f"cloudfront/{distribution}", owner=Owner.ZONE, per_s=2, burst=20),),
            asynchronous=True,
            open_targets=3_000,
            effective_within_ms=60_000,
            tiered=tiered,
            cost=Cost(free_a_month=1_000, usd_a_target=0.005, account=f"cloudfront/{account or distribution}"),
        )

    def purge_request(self, targets: Sequence[Target]) -> httpx.Request:
        """See HostedPlace."""
        paths = list(dict.fromkeys(_path(target) for target in targets))
        items = "".join(f"<Path>{escape(path)}</Path>" for path in paths)
        body = (
            f'<InvalidationBatch xmlns="{_NAMESPACE}"><Paths><Quantity>{len(paths)}</Quantity><Items>{items}</Items></Paths>'
            f"<CallerReference>{self._reference()}</CallerReference></InvalidationBatch>"
        )
        return httpx.Request(
            "POST", f"{self._base}/2020-05-31/distribution/{self._distribution}/invalidation",
            content=body.encode(), headers={"content-type": "application/xml"},
        )  # fmt: skip

    def status_request(self, ticket: str) -> httpx.Request:
        """See HostedPlace."""
        return httpx.Request("GET", f"{self._base}/2020-05-31/distribution/{self._distribution}/invalidation/{ticket}")

    async def authorize(self, client: httpx.AsyncClient, request: httpx.Request) -> None:
        """See HostedPlace. Runs in a thread, because a role's credentials may come over the network."""
        request.headers.update(await asyncio.to_thread(self._signed, request.method, str(request.url), request.content))

    def meaning(self, response: httpx.Response) -> Answer | None:
        """See HostedPlace: `Code` is more precise than the status."""
        if response.status_code < 400:
            return None
        match = _CODE.search(response.text)
        code = match[1] if match else ""
        if code in _TOO_MANY:
            return Throttled(
                retry_after_s=retry_after_s(response), reason=without(self.explained(response), self.secrets())
            )
        if code in _CREDENTIALS or code == "NoSuchDistribution":
            return Rejected(
                reason=f"{without(self.explained(response), self.secrets())}: mend the settings", place_wide=True
            )
        return None

    def explained(self, response: httpx.Response) -> str:
        """See HostedPlace: `Code` and `Message`."""
        texts = [match[1] for pattern in (_CODE, _MESSAGE) if (match := pattern.search(response.text))]
        return ": ".join(texts) or response.text

    def answer(self, response: httpx.Response) -> Answer:
        """See HostedPlace: 201 with an id."""
        match = _ID.search(response.text)
        if response.status_code != 201 or match is None:
            return no_success(self, response)
        return Accepted(ticket=match[1], ask_after_s=5.0)

    def status(self, response: httpx.Response, ticket: str) -> Answer:
        """See HostedPlace: Completed, or InProgress."""
        match = _STATUS.search(response.text)
        if match is None:
            return no_success(self, response)
        return Delivered() if match[1] == "Completed" else Accepted(ticket=ticket, ask_after_s=5.0)

    def _signed(self, method: str, url: str, content: bytes) -> dict[str, str]:
        frozen = self._credentials()
        auth: Any = imported("botocore.auth", extra="cloudfront", what="CloudFront")
        request: Any = imported("botocore.awsrequest", extra="cloudfront", what="CloudFront").AWSRequest(
            method=method, url=url, data=content
        )
        auth.SigV4Auth(frozen, "cloudfront", "us-east-1").add_auth(request)
        return {name: request.headers[name] for name in request.headers}


def _path(target: Target) -> str:
    if target.by == EVERYTHING:
        return "/*"
    if target.by == TAG:
        return "#" + target.value
    parts = urlsplit(target.value)
    return quote((parts.path or "/") + (f"?{parts.query}" if parts.query else ""), safe=_IN_PATHS)


class _NoSessionTokens(logging.Filter):
    """Filter of botocore's signing, which logs whole canonical requests, including the session token."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno > logging.DEBUG


def _credentials(access_key: str | None, key: SecretStr | None, token: SecretStr | None) -> Callable[[], Any]:
    """Return a function that gives the credentials of the moment.

    Raises ConfigurationError if botocore is missing. The function raises CdnError if botocore finds no credentials.
    """
    botocore_credentials: Any = imported("botocore.credentials", extra="cloudfront", what="CloudFront")
    logging.getLogger("botocore.auth").addFilter(_NO_SESSION_TOKENS)
    if access_key is not None and key is not None:
        fixed = botocore_credentials.ReadOnlyCredentials(
            access_key, key.get_secret_value(), token and token.get_secret_value()
        )
        return lambda: fixed
    session: Any = imported("botocore.session", extra="cloudfront", what="CloudFront").get_session()

    def frozen() -> Any:
        credentials = session.get_credentials()
        if credentials is None:
            raise CdnError(
                "CloudFront: botocore finds no credentials; set access_key and secret_key, or give it a role"
            )
        return credentials.get_frozen_credentials()

    return frozen


_NO_SESSION_TOKENS: Final = _NoSessionTokens()
