"""Places of members, kept by one cell or by several that know nothing of each other, against the order that there is."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from quaestor.invalidation.matching.places import Places

KEYS = st.integers(0, 30)
MOVES = st.lists(st.tuples(st.integers(0, 5), KEYS), max_size=12)


def ordered(keys: list[int]) -> bool:
    return all(key < next_ for key, next_ in pairwise(keys))


@given(
    st.lists(KEYS, min_size=1, max_size=6, unique=True).map(sorted),
    st.integers(1, 3),
    MOVES,
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=1000, deadline=None)
def test_an_order_that_no_cell_has_seen_change_is_the_same(
    keys: list[int], cells: int, moves: list[tuple[int, int]], skipping: bool, full: bool
) -> None:
    """If no cell reports a change, the order is the same; a single cell reports a change exactly if the order changed."""
    kept = [
        Places(
            [(key,) for key in keys],
            [place if place % cells == cell else None for place in range(len(keys))],
            skipping=skipping,
            full=full,
        )
        for cell in range(cells)
    ]
    first, last = keys[0], keys[-1]
    now = list(keys)
    for number, key in moves:
        place = number % len(keys)
        now[place] = key
        inside = (not skipping or now[0] >= first) and (not full or now[-1] <= last)
        stays = kept[place % cells].keeps(place, (key,))
        if cells == 1:
            assert stays == (ordered(now) and inside)
        if not stays:
            return
        assert ordered(now)
        assert inside
