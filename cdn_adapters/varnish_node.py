"""One Varnish node: the headers that it understands and the purge requests that it answers (see `varnish.vcl`)."""

from __future__ import annotations

from collections.abc import Sequence

import httpx
from pydantic import SecretStr

from quaestor.cdn_adapters.capabilities import EVERYTHING, Capabilities, TagField
from quaestor.cdn_adapters.place import TAG, URL, Target
from quaestor.cdn_adapters.purge_method import PROOF, WHOLE_FIELD, PurgeMethodPlace

_FIELD_BYTES = 7_900
"""Bytes for the tags of one answer: Varnish refuses a field line above `http_resp_hdr_len`, 8 KiB."""


class VarnishNode(PurgeMethodPlace):
    """Implementation of Place for one Varnish. Fields: see VarnishAdapter.

    address: base URL, without credentials. Raises ConfigurationError if it is not an http(s) URL.
    """

    name = "varnish"
    software = "Varnish"

    def __init__(
        self,
        address: str,
        *,
        soft: bool,
        token: str | SecretStr | None,
        tags: bool,
        timeout_s: float,
        tiered: bool = False,
    ) -> None:
        super().__init__(address, token=token, timeout_s=timeout_s)
        self._soft = soft
        self.capabilities = Capabilities(
            kinds=(TAG, URL) if tags else (URL, EVERYTHING),
            batch={TAG: 100},
            batch_bytes=4_000,
            soft=True,
            tag_field=TagField(name="xkey", budget_bytes=_FIELD_BYTES) if tags else None,
            tiered=tiered,
        )

    def requests(self, client: httpx.AsyncClient, targets: Sequence[Target]) -> list[httpx.Request]:
        """Return the requests that purge a batch: one for all tags, one for each URL, one for everything."""
        soft = {"quaestor-purge-soft": "1"} if self._soft else {}
        requests = [self.by_url(client, target.value, soft) for target in targets if target.by == URL]
        tags = [target.value for target in targets if target.by == TAG]
        if tags:
            name = "xkey-softpurge" if self._soft else "xkey-purge"
            requests.append(self.request(client, {name: " ".join(tags)}))
        if any(target.by == EVERYTHING for target in targets):
            requests.append(self.request(client, {WHOLE_FIELD: "1"}))
        return requests

    def proved(self, request: httpx.Request, response: httpx.Response) -> bool:
        """See PurgeMethodPlace. A VCL from before bans takes a purge of everything for a purge of a URL."""
        proof = response.headers.get(PROOF)
        return proof == "everything" if WHOLE_FIELD in request.headers else proof is not None

    def forbidden(self) -> str:
        """Return the remedy of a refusal, for people."""
        return "give VarnishAdapter the token of varnish_vcl, and varnish_vcl this host in purgers"

    def remedy(self) -> str:
        """Return the remedy of a Varnish that does not know purges, for people."""
        return "start Varnish with varnish_vcl, or let your VCL answer purges with 200 and quaestor-purged"
