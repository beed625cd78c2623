"""Routes that are asked for whole answers, whatever conditions a client has.

Their handlers decide about conditions before they read what would be stored, so every client that has a copy would keep the cache
from having one.
"""

from __future__ import annotations

from quaestor.middleware.latest_keys import LatestKeys


class AskedWhole(LatestKeys):
    """Memory of these routes (`Plan.route`), learnt when an answer could have been stored if its handler had seen no conditions.

    Forgetting one costs a miss: the answer to the next condition is for its client alone, and teaches it again.
    """
