"""The parameters of a query string that count: the others are neither part of the key nor visible to the handler. Pure.

If a parameter is read but not keyed, the first client decides which answer all others receive (cache poisoning by unkeyed input).
Therefore ignored parameters are *removed* before the handler runs, by the same cut at `&` that makes the key. Some parsers take a
piece such as `utm_content=1;q=evil` for two parameters; here it is removed or kept as a whole.
"""

from __future__ import annotations

from urllib.parse import unquote_plus

from quaestor.policy import RoutePolicy
from quaestor.read_path.key import ordered

TRACKING = frozenset(
    {
        "_ga", "_gac", "_gl", "_hsenc", "_hsmi", "_ke", "_kx", "_openstat", "dclid", "epik", "fb_action_ids",
        "fb_action_types", "fb_source", "fbclid", "gad_campaignid", "gad_source", "gbraid", "gclid", "gclsrc",
        "hsctatracking", "igshid", "li_fat_id", "mc_cid", "mc_eid", "mkt_tok", "msclkid", "rdt_cid", "s_kwcid", "sccid",
        "srsltid", "ttclid", "twclid", "utm_*", "vero_id", "wbraid", "wickedid", "yclid", "ysclid",
    }
)  # fmt: skip
"""Parameters that advertisers and mail services append to links. `*` at the end stands for anything."""


class Tracking:
    """A list of names, some ending in `*`. O(1) for plain names, O(number of prefixes) for the others."""

    def __init__(self, names: frozenset[str] = TRACKING) -> None:
        self._names = frozenset(name for name in names if not name.endswith("*"))
        self._prefixes = tuple(sorted(name[:-1] for name in names if name.endswith("*")))

    def __contains__(self, name: str) -> bool:
        return name in self._names or (bool(self._prefixes) and name.startswith(self._prefixes))


def kept(query: bytes, policy: RoutePolicy, tracking: Tracking, *, sort: bool = False) -> bytes:
    """Return the query string without ignored parameters, otherwise as it was sent. The same object if nothing is ignored.

    O(size), and O(size log size) if it is sorted.

    sort: whether the order of parameters is ignored, unless the route declares otherwise. Then the parameters are put into the
        resource's order.
    """
    if not query:
        return query
    if policy.query is not None or policy.tracking:
        pieces = query.split(b"&")
        counting = [piece for piece in pieces if _counts(_name(piece), policy, tracking)]
        query = query if len(counting) == len(pieces) else b"&".join(counting)
    return ordered(query) if (sort if policy.sort_query is None else policy.sort_query) else query


def _counts(name: str, policy: RoutePolicy, tracking: Tracking) -> bool:
    if policy.query is not None:
        return name in policy.query
    return name in policy.declared_query or name not in tracking


def _name(piece: bytes) -> str:
    """Return the name as the handler would read it: decoded, because every framework reads `%75tm_source` as `utm_source`."""
    return unquote_plus(piece.partition(b"=")[0].decode("latin-1"), errors="surrogateescape")
