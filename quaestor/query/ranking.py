"""The order of a filter itself: by distance for `$near`, by score for `$text` (if sorted by `{$meta: "textScore"}`).

mongod's order among equals is undefined.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from quaestor.query.ast import Node
from quaestor.query.geo.near import distance_function, near_of
from quaestor.query.text.operator import search_of

Rank = Callable[[Mapping[str, Any]], float]


def rank_key(root: Node) -> Rank | None:
    """Return a sort key of a matching document: smaller comes first. None if the filter gives no order.

    root: of a compiled query. By distance if the filter has `$near`, which mongod does not allow beside `$text`.
    """
    near = near_of(root)
    if near is not None:
        distance = distance_function(near)

        def by_distance(document: Mapping[str, Any]) -> float:
            away = distance(document)
            return math.inf if away is None else away

        return by_distance
    search = search_of(root)
    return None if search is None else lambda document: -search.score(document)
