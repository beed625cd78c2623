"""The parameters of a query string that count: the others are neither part of the key nor shown to the handler. Pure.

A parameter that is not keyed but read would let whoever asks first decide what everybody else is given (cache poisoning by
unkeyed input). So what is ignored is *removed* before the handler runs, by the same cut at `&` that the key is made of: a
piece such as `utm_content=1;q=evil`, which some parsers take for two parameters, is removed or kept as a whole.
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
"""What advertisers and mail services append to links. `*` at the end stands for anything."""


class Tracking:
    """A list of names, some ending in `*`. O(1) for the plain ones, O(number of prefixes) for the others."""

    def __init__(self, names: frozenset[str] = TRACKING) -> None:
        self._names = frozenset(name for name in names if not name.endswith("*"))
        self._prefixes = tuple(sorted(name[:-1] for name in names if name.endswith("*")))

    def __contains__(self, name: str) -> bool:
        return name in self._names or (bool(self._prefixes) and name.startswith(self._prefixes))


def kept(query: bytes, policy: RoutePolicy, tracking: Tracking, *, sort: bool = False) -> bytes:
    """The query string without what is ignored, otherwise as it was sent. The same object if nothing is.

    O(size), and O(size log size) if it is sorted.

    sort: whether the order of parameters is ignored where the route does not say: then they are put into the resource's order.
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
    """As the handler would read it: decoded, because `%75tm_source` is `utm_source` to every framework."""
    return unquote_plus(piece.partition(b"=")[0].decode("latin-1"), errors="surrogateescape")
