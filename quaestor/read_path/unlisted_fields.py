"""Fields that may identify a client to an origin behind the proxy, although no list names them.

An identity proxy may identify the client in any field: X-Forwarded-Email, X-Access-Key, X-Client-IP. A list of such names can
never be complete. A proxy forwards every field, so its cache cannot see which of them the origin reads. Credentials are here:

- every `X-` field, except fields known to be independent of the client;
- names that look like a key: Ocp-Apim-Subscription-Key, Signature (RFC 9421), DPoP (RFC 9449);
- fields in which a proxy or a CDN names the client: Remote-Groups, True-Client-IP, CF-Connecting-IP.

The setting `ignored_fields` revokes that. The origin does too, by `public`, `s-maxage`, or a `Vary` that names the field.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from quaestor.read_path.asked_fields import CORRELATION, opens
from quaestor.read_path.request import NOTABLE, Notable

_HARMLESS = CORRELATION | frozenset(
    {
        # The proxy makes this field anew for the origin, or drops it.
        b"x-forwarded-for",
        # Scripts and browsers set these fields, the same for all users of a page.
        b"x-requested-with",
        b"x-moz",
        b"x-purpose",
    }
)
_NAMES_CLIENT = re.compile(rb"^remote-|(?:^|-)(?:client|connecting)-ip(?:v[46])?$")
"""Names in which identity proxies and CDNs say who the client is, or where."""


class UnlistedFields(Notable):
    """Verdicts on the fields of a request to a proxy: fields in `NOTABLE` and unlisted fields need a closer look.

    ignored: names that are no credentials here.
    """

    def __init__(self, ignored: Collection[bytes]) -> None:
        super().__init__()
        self._harmless = _HARMLESS | frozenset(ignored)

    def judge(self, name: bytes) -> bool:
        """Whether a field needs a closer look."""
        plain = name.replace(b"_", b"-")
        if NOTABLE[name]:
            return True
        if plain in self._harmless:
            return False
        return plain.startswith(b"x-") or opens(name) or _NAMES_CLIENT.search(plain) is not None
