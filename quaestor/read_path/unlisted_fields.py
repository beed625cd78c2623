"""Fields by which a client may be known to an origin behind the proxy, though no list names them.

An identity proxy may say who asks in any field: X-Forwarded-Email, X-Access-Key, X-Client-IP. A list of such names can never be
complete. A proxy hands every field on, so its cache cannot see which of them the origin reads. Every `X-` field is therefore a
credential there, except those that are known to say nothing of the client, and those of the setting `ignored_fields`. The origin
takes that back by `public`, `s-maxage`, or a `Vary` that names the field.
"""

from __future__ import annotations

from collections.abc import Collection

from quaestor.read_path.asked_fields import CORRELATION
from quaestor.read_path.request import NOTABLE, Notable

_HARMLESS = CORRELATION | frozenset(
    {
        # The proxy makes these anew for the origin, or drops them.
        b"x-forwarded-for",
        # Set by scripts and browsers, the same for everybody who uses the page.
        b"x-requested-with",
        b"x-moz",
        b"x-purpose",
    }
)


class UnlistedFields(Notable):
    """Verdicts on the fields of a request to a proxy: those of `NOTABLE` need a closer look, and every unlisted one.

    ignored: names that are no credentials here.
    """

    def __init__(self, ignored: Collection[bytes]) -> None:
        super().__init__()
        self._harmless = _HARMLESS | frozenset(ignored)

    def judge(self, name: bytes) -> bool:
        """Whether a field needs a closer look."""
        plain = name.replace(b"_", b"-")
        return NOTABLE[name] or (plain.startswith(b"x-") and plain not in self._harmless)
