"""Routes whose handlers never see a client's conditions, so that they return whole answers.

Their handlers evaluate conditions before they read what would be stored. If they saw conditions, every client with a copy would
prevent the cache from storing an answer.
"""

from __future__ import annotations

from quaestor.middleware.latest_keys import LatestKeys


class AskedWhole(LatestKeys):
    """Memory of such routes (`Plan.route`), learnt when only a visible condition kept an answer from being stored.

    Forgetting a route costs one miss: the answer to the next condition goes to its client alone, and the route is learnt again.
    """
