"""Apache Traffic Server: purges by URL, and of everything that one server keeps."""

from __future__ import annotations

from collections.abc import Sequence

import httpx
from pydantic import SecretStr

from quaestor.cdn_adapters.capabilities import EVERYTHING, URL, Capabilities
from quaestor.cdn_adapters.place import Target
from quaestor.cdn_adapters.purge_method import WHOLE_FIELD, PurgeMethodPlace
from quaestor.cdn_adapters.secret_settings import secret


class TrafficServer(PurgeMethodPlace):
    """One Traffic Server with the configuration of `quaestor cdn config ats`. Implements Place.

    address: base URL as this process reaches it, e.g. "http://10.0.0.5:8080". Raises ConfigurationError for anything else.
    token: the token in the server's configuration.
    timeout_s: for one purge request.

    Traffic Server knows no tags. A purge of everything begins a new generation of cache keys (the plugin remap_purge).
    """

    name = "ats"
    software = "Traffic Server"
    capabilities = Capabilities(kinds=(URL, EVERYTHING))

    def __init__(self, address: str, *, token: str | SecretStr, timeout_s: float = 2.0) -> None:
        super().__init__(address, token=token, timeout_s=timeout_s)
        self._everything = secret(token, f"the purge token of {self.software}")

    def requests(self, client: httpx.AsyncClient, targets: Sequence[Target]) -> list[httpx.Request]:
        """Return the requests that purge a batch: one for each URL, and one for everything."""
        requests = super().requests(client, targets)
        if any(target.by == EVERYTHING for target in targets):
            requests.append(self.request(client, {WHOLE_FIELD: self._everything.get_secret_value()}))
        return requests

    def proved(self, request: httpx.Request, response: httpx.Response) -> bool:
        """See PurgeMethodPlace. Without remap_purge, the server takes a purge of everything for a purge of a URL, which has no
        body.
        """
        whole = WHOLE_FIELD in request.headers
        return super().proved(request, response) and (not whole or response.text.startswith("PURGED"))
