"""A record outside of a window whose end is not known: it stays outside while it stands where it stood."""

from __future__ import annotations

import pytest

from tests.unit.matching.scene import Scene, find, types

HIDES_ITS_ORDER = find({"status": "paid"}, sort=(("price", 1), ("_id", 1)), limit=2, projection={"title": 1})
OUTSIDE = {"_id": 9, "status": "paid", "price": 5, "title": "x", "views": 1}


def scene(**query: object) -> Scene:
    made = Scene()
    made.register(HIDES_ITS_ORDER if not query else find({"status": "paid"}, limit=2, **query), (1, 2))
    return made


def test_an_update_of_what_neither_filter_nor_sort_read_moves_nothing_in() -> None:
    assert scene().update(OUTSIDE, changed=("views",)) == []
    assert scene().update(OUTSIDE, changed=("title",)) == [], "a member's title would count, not this one's"


def test_an_update_of_what_they_read_may_move_it_in() -> None:
    for path in ("price", "status"):
        assert types(scene().update(OUTSIDE, changed=(path,))) == ["add"]


def test_images_tell_where_no_paths_do() -> None:
    assert scene().update(OUTSIDE | {"views": 2}, before=OUTSIDE) == []
    assert types(scene().update(OUTSIDE | {"price": 1}, before=OUTSIDE)) == ["add"]
    assert types(scene().update(OUTSIDE | {"views": 2})) == ["add"], "neither images nor paths"


def test_an_insert_may_stand_anywhere() -> None:
    assert types(scene().insert(OUTSIDE)) == ["add"]


@pytest.mark.parametrize("sort", [(), (("price", 1),)])
def test_among_equals_what_the_filter_or_a_compound_index_reads_may_move_it_in(
    sort: tuple[tuple[str, int], ...],
) -> None:
    """Equal records are found in the order of an index, and that is made of these fields."""
    query: dict[str, object] = {"sort": sort, "projection": {"title": 1}}
    indexed = query | {"index_keys": (("status", "views"),)}
    assert scene(**query).update(OUTSIDE, changed=("views",)) == []
    assert types(scene(**query).update(OUTSIDE, changed=("status",))) == ["add"]
    assert types(scene(**indexed).update(OUTSIDE, changed=("views",))) == ["add"]


def test_a_member_is_judged_by_what_it_shows() -> None:
    member = OUTSIDE | {"_id": 1}
    assert types(scene().update(member | {"title": "y"}, changed=("title",))) == ["change"]
