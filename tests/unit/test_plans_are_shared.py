"""A query is planned once in a process, for the app that registers it and for the node that guards it."""

from __future__ import annotations

from quaestor.event_layer import codec
from quaestor.invalidation.matching.active import ActiveQueries
from quaestor.model import Operation, Query, Registration
from quaestor.planning.followed_query import followed
from quaestor.planning.plan_cache import plan_of


def test_a_node_in_the_app_s_process_takes_the_plan_that_the_app_has_made() -> None:
    """Planning is the dearest part of a registration; the way over the wire does not change a query."""
    query = Query(
        namespace="shop.items", operation=Operation.FIND, filter={"price": {"$lt": 5}, "tags": {"$in": ["a", "b"]}},
        sort=(("price", 1),), limit=3, projection={"name": 1},
    )  # fmt: skip
    plan = plan_of(query)
    decoded = codec.decode_query_event(
        codec.encode_query_event(
            Registration(
                id="o:1",
                tenant="t",
                query_id=plan.query_id,
                query=query,
                since=1,
                read_at=2,
                members=(1,),
                last=None,
                expires_at_ms=3,
            )
        )
    )
    assert isinstance(decoded, Registration)
    _, planned = ActiveQueries().prepare(decoded.query_id, decoded.query, tenant=decoded.tenant, now_s=0)
    assert planned is plan


def test_queries_that_read_a_view_by_two_definitions_have_two_plans() -> None:
    """Writes to the collections below count, and a new definition gives another query."""
    pipeline = ({"$unionWith": "seen"},)
    asked = Query(namespace="shop.items", operation=Operation.AGGREGATE, filter={}, pipeline=pipeline)
    plans = [
        plan_of(followed(asked, views=({"view": "shop.seen", "reads": [read], "definition": definition},)))
        for read, definition in (("shop.a", "1"), ("shop.b", "1"), ("shop.b", "2"))
    ]
    assert [plan.foreign_namespaces for plan in plans] == [("shop.a",), ("shop.b",), ("shop.b",)]
    assert len({plan.query_id for plan in plans}) == 3
    assert plan_of(followed(asked, stands_for=Operation.COUNT)).query_id != plan_of(asked).query_id
