"""Hidden inputs without a server: what of a command is compared, how queries of a run are grouped, and what is remembered."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from quaestor.capture.run_constants import MOST_SHAPES, QueryConstants, RunQuery, query_constants, shapes_of
from quaestor.read_path.hidden_inputs import MOST_KEYS, MOST_ROUTES, HiddenInputs, Judged


def of(filter_: dict[str, Any], collection: str = "items", **options: Any) -> QueryConstants:
    constants = query_constants({"find": collection, "filter": filter_, "$db": "shop"} | options, "shop")
    assert constants is not None
    return constants


def run(*values: int, follows: bool = False, shape: int = 1) -> list[RunQuery]:
    return [RunQuery(QueryConstants(shape, value), follows, "find on shop.items") for value in values]


def hidden_inputs(*dead: str) -> HiddenInputs:
    return HiddenInputs(dead=dead.__contains__)


def judge(known: HiddenInputs, of_run: list[RunQuery], at_ms: int, key: str = "/a", route: str = "a") -> Judged:
    return known.judge(key, route, of_run, started_ms=at_ms, ended_ms=at_ms + 1)


@pytest.mark.parametrize(
    ("first", "other"),
    [
        ({"a": 1}, {"a": 2}), ({"a": -1}, {"a": -2}), ({"a": 1}, {"a": 1.0}), ({"a": 1}, {"a": True}), ({"a": "1"}, {"a": b"1"}),
        ({"a": {"$in": [1, 2]}}, {"a": {"$in": [2, 1]}}), ({"a": {"$in": [1]}}, {"a": {"$in": [1, 2]}}),
        ({"hours.7": 1}, {"hours.12": 1}), ({"a": uuid.UUID(int=1)}, {"a": uuid.UUID(int=2)}),
        ({"$or": [{"a": 1}, {"b": [2]}]}, {"$or": [{"a": 1}, {"b": [3]}]}),
    ],
)  # fmt: skip
def test_other_values_have_one_shape(first: dict[str, Any], other: dict[str, Any]) -> None:
    assert of(first).shape == of(other).shape
    assert of(first).value != of(other).value


def test_other_fields_and_operators_have_another_shape() -> None:
    shapes = {of(filter_).shape for filter_ in ({"a": 1}, {"b": 1}, {"a": {"$gt": 1}}, {"a": 1, "b": 1}, {})}
    assert len({*shapes, of({"a": 1}, "orders").shape, of({"a": 1}, sort={"a": 1}).shape}) == 7


def test_a_collection_of_the_month_is_a_value_and_so_are_skip_and_limit() -> None:
    for first, other in (
        (of({"a": 1}, "log_2026_11"), of({"a": 1}, "log_2026_12")), (of({"a": 1}, skip=3), of({"a": 1}, skip=4)),
        (of({"a": 1}, limit=3), of({"a": 1}, limit=4)),
    ):  # fmt: skip
        assert first.shape == other.shape
        assert first.value != other.value


def test_options_that_change_no_result_are_not_compared() -> None:
    traced = of(
        {"a": 1}, comment="trace 7", maxTimeMS=731, batchSize=10, lsid={"id": 1}, readConcern={"afterClusterTime": 5}
    )
    assert traced == of({"a": 1})


def test_a_value_of_the_clients_own_that_shows_its_address_is_not_compared() -> None:
    assert query_constants({"find": "items", "filter": {"a": object()}}, "shop") is None


def test_queries_of_one_shape_have_no_order() -> None:
    """Concurrent queries may leave in any order."""
    assert shapes_of(run(1, 2, 3)) == shapes_of(run(3, 1, 2))
    assert shapes_of(run(1, 2)) != shapes_of(run(1, 2, 2))


def test_nothing_is_bounded_before_a_difference() -> None:
    known = hidden_inputs()
    assert [judge(known, run(5), at_ms).until_ms for at_ms in (0, 10, 20)] == [None] * 3
    assert not known.learned("a")


def test_the_first_difference_bounds_the_route_and_tells_once() -> None:
    known = hidden_inputs()
    routes: list[object] = []
    known.on_learned.append(routes.append)
    judge(known, run(5), 0)
    assert judge(known, run(6), 10).until_ms == 10
    assert judge(known, run(7), 20).until_ms == 20
    assert judge(known, run(5), 30, key="/b").until_ms == 30
    assert judge(known, run(5), 30, key="/c", route="c").until_ms is None
    assert routes == ["a"]


def test_life_grows_with_what_was_seen_up_to_the_longest_and_then_with_what_exceeds_it() -> None:
    """The first runs end 1 ms after their begin."""
    known = hidden_inputs()
    judge(known, run(5), 0)
    judge(known, run(5), 101)
    lives = [(at_ms, judge(known, run(6), at_ms).until_ms) for at_ms in (200, 221, 261, 301, 331)]
    assert lives == [(200, 200), (221, 241), (261, 301), (301, 301), (331, 361)]


def test_a_run_that_began_before_the_latest_teaches_nothing_and_is_not_stored_if_it_differs() -> None:
    known = hidden_inputs()
    judge(known, run(5), 10)
    assert judge(known, run(4), 5).until_ms is None
    judge(known, run(6), 20)
    assert judge(known, run(5), 15).until_ms == 15
    assert judge(known, run(6), 31).until_ms == 41


def test_a_write_explains_a_difference_after_a_read() -> None:
    """However often; without one, as far as is known, the second difference counts."""
    for dead, learned in ((("r1",), 0), ((), 1)):
        known = hidden_inputs(*dead)
        for number in range(4):
            of_run = [*run(1), *run(10 + number, follows=True, shape=2)]
            judge(known, of_run, number)
            known.note("/a", of_run, ["r1", "r2"])
            assert known.learned("a") == (learned if number >= 2 else 0)


@pytest.mark.parametrize(("dead", "differences"), [(("r1",), 3), ((), 2)], ids=["by writes", "probably not by writes"])
def test_a_hidden_input_is_learned_beside_any_number_of_undecided_shapes(
    dead: tuple[str, ...], differences: int
) -> None:
    """A route's table holds 64 shapes. Shapes without a hidden input do not keep one with a hidden input out."""
    known = hidden_inputs(*dead)
    for shape in range(2, MOST_SHAPES + 2):
        for number in range(differences):
            of_run = [*run(1), *run(number, follows=True, shape=shape)]
            judge(known, of_run, number, key=f"/{shape}")
            known.note(f"/{shape}", of_run, ["r1", "r2"])
    assert not known.learned("a")
    assert [judge(known, run(number, shape=1_000), number).until_ms for number in range(3)] == [None, 1, 2]
    assert known.learned("a") == 1


def test_explained_shapes_do_not_end_what_was_learned() -> None:
    """Nor do routes whose differences were all explained by writes take the place of others."""
    known = hidden_inputs("r1")
    judge(known, run(5), 0)
    judge(known, run(6), 10)
    for number in range(MOST_ROUTES + 1):
        for shape in (2, 3):
            of_run = [*run(1), *run(number, follows=True, shape=shape)]
            judge(known, of_run, number, key=f"/{shape}", route=f"b{number}")
            known.note(f"/{shape}", of_run, ["r1", "r2"])
    assert known.learned("a") == 1


def test_proof_makes_the_first_difference_count() -> None:
    known = hidden_inputs("r1")
    for number, proved in ((1, False), (2, True)):
        judged = judge(known, [*run(1), *run(number, follows=True, shape=2)], number)
        assert known.explain("a", judged, proved=proved) == proved
    assert known.learned("a") == 1


def test_another_number_of_shapes_is_not_explained() -> None:
    known = hidden_inputs()
    judge(known, run(1), 0)
    judged = judge(known, [*run(2), *run(3, shape=2)], 10)
    assert not known.explain("a", judged, proved=True)


def test_keys_and_routes_of_the_longest_ago_are_forgotten() -> None:
    known = hidden_inputs()
    for number in range(MOST_ROUTES + 1):
        judge(known, run(5), 0, route=str(number), key=str(number))
        judge(known, run(6), 10, route=str(number), key=str(number))
    assert (known.learned("0"), known.learned("1")) == (0, 1)
    for number in range(MOST_KEYS + 1):
        judge(known, run(5), 20, key=f"/{number}")
    assert len(known) == MOST_KEYS
