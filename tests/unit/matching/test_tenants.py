"""Many apps on one node: each may use what the others leave, and keeps its share when they want more."""

from __future__ import annotations

from dataclasses import replace

from quaestor.invalidation.matching.node import Outcome
from quaestor.model import Cancellation, Invalidated, MatchType, Query, Usage
from quaestor.planning.plan import plan_query
from tests.unit.matching.scene import Scene, find, types

GRACE_MS = 10_000
LONG_MS = 10**9


class Apps:
    """A scene with several tenants; remembers whose registrations are held."""

    def __init__(self, **limits: int) -> None:
        self.scene = Scene(**limits)
        self.owner: dict[str, str] = {}

    def register(self, tenant: str, query: Query, members: tuple[int, ...] | None = ()) -> str:
        """The last outcome's type."""
        registration = replace(self.scene.registration(query, members, expires_in_ms=LONG_MS), tenant=tenant)
        outcomes = self.scene.node.register(registration, now_ms=self.scene.now_ms)
        self.hear(outcomes)
        if types(outcomes)[-1] == "Activated":
            self.owner[registration.id] = tenant
        return types(outcomes)[-1]

    def hear(self, outcomes: list[Outcome] | list[Invalidated]) -> list[str]:
        """Return the owners of the evicted registrations."""
        return [
            self.owner.pop(registration_id)
            for outcome in outcomes
            if isinstance(outcome, Invalidated) and outcome.match_type is MatchType.EVICTED
            for registration_id in outcome.registration_ids
        ]

    def read(self, tenant: str, query: Query, reads: int) -> None:
        usage = Usage(tenant=tenant, queries=((plan_query(query).query_id, reads),))
        self.scene.node.used(usage, now_ms=self.scene.now_ms)

    def held(self, tenant: str) -> int:
        return list(self.owner.values()).count(tenant)


def in_own(tenant: str, number: int) -> Query:
    return find({"customer": number}, namespace=f"{tenant}.orders")


def unlike(number: int, namespace: str = "shop.items") -> Query:
    """No index finds it."""
    return find({"a": {"$not": {"$elemMatch": {"$eq": number}}}}, namespace=namespace)


def test_a_tenant_alone_may_use_the_whole_node() -> None:
    apps = Apps(max_registrations=50)
    for number in range(50):
        assert apps.register("one", in_own("one", number)) == "Activated"
    assert apps.held("one") == 50


def test_a_newcomer_gets_its_share_of_a_full_node_however_much_the_others_are_read() -> None:
    apps = Apps(max_registrations=60)
    for number in range(60):
        apps.register("one", in_own("one", number))
        apps.read("one", in_own("one", number), 1_000)
    for tenant in ("two", "three"):
        for number in range(60):
            apps.register(tenant, in_own(tenant, number))
    assert (apps.held("one"), apps.held("two"), apps.held("three")) == (20, 20, 20)


def test_a_tenant_loses_the_entries_read_least() -> None:
    apps = Apps(max_registrations=40)
    for number in range(40):
        apps.register("one", in_own("one", number))
        apps.read("one", in_own("one", number), 100 if number < 10 else 1)
    for number in range(20):
        apps.register("two", in_own("two", number))
    hot = {f"app:{number + 1}" for number in range(10)}
    assert apps.held("one") == 20
    assert hot <= apps.owner.keys()


def test_a_flood_takes_nothing_from_a_tenant_within_its_share() -> None:
    apps = Apps(max_registrations=40)
    for number in range(15):
        apps.register("small", in_own("small", number))
    apps.scene.now_ms += GRACE_MS
    for number in range(500):
        apps.register("flood", in_own("flood", number))
        apps.read("flood", in_own("flood", number), 10)
        apps.scene.now_ms += 100
    assert apps.held("small") == 15
    assert apps.held("flood") == 25


def test_memory_is_shared_too() -> None:
    """One that caches few and large results is the one that makes room."""
    apps = Apps(max_bytes=400_000)
    for number in range(10):
        apps.register("large", in_own("large", number), tuple(range(number * 1_000, number * 1_000 + 300)))
    assert apps.held("large") == 10
    for number in range(150):
        assert apps.register("small", in_own("small", number)) == "Activated"
    assert apps.held("small") == 150
    assert 0 < apps.held("large") < 10


def test_queries_without_an_index_are_shared_too() -> None:
    apps = Apps(max_unindexed=20)
    for number in range(20):
        apps.register("one", unlike(number))
        apps.read("one", unlike(number), 100)
    for number in range(100, 120):
        apps.register("two", unlike(number))
    assert (apps.held("one"), apps.held("two")) == (10, 10)


def test_the_same_query_of_two_tenants_is_on_two_accounts() -> None:
    apps = Apps()
    for tenant in ("one", "two"):
        apps.register(tenant, unlike(1))
    node = apps.scene.node
    assert node.queries == 2
    accounts = {tenant.name: (tenant.registrations, tenant.bytes) for tenant, _ in node.largest_tenants()}
    assert accounts["one"] == accounts["two"]
    node.cancel(Cancellation(tenant="one", query_id="", registration_ids=("app:1",)))
    assert [tenant.name for tenant, _ in node.largest_tenants()] == ["two"]
    assert types(apps.scene.insert({"_id": 1, "a": 5})) == ["add"]
    assert node.bytes == 0


def test_a_shared_predicate_stays_on_an_account_when_its_first_user_leaves() -> None:
    apps = Apps(max_unindexed=1)
    for tenant in ("one", "two"):
        apps.register(tenant, unlike(1))
    node = apps.scene.node
    node.cancel(Cancellation(tenant="one", query_id="", registration_ids=("app:1",)))
    apps.scene.now_ms += GRACE_MS
    assert apps.register("three", unlike(2)) == "Activated" or apps.held("two") == 1
    node.cancel(Cancellation(tenant="two", query_id="", registration_ids=("app:2", "app:3")))
    assert (node.queries, node.bytes) == (0, 0)


def test_the_tenant_whose_queries_cost_most_loses_them_first() -> None:
    """Both have queries that every write of their collection tries; one's collections are written twenty times as much."""
    apps = Apps(max_tried_per_s=800)
    calm, busy = unlike(1, "calm.c"), "busy.c"
    apps.register("calm", calm, None)
    for number in range(50):
        apps.register("busy", unlike(number, busy), None)
    record = {"_id": 1, "a": list(range(50))}
    for _ in range(60):
        for number in range(40):
            apps.scene.update(record, before=record, namespace=busy)
            if number % 20 == 0:
                apps.scene.update(record, before=record, namespace="calm.c")
        apps.scene.now_ms += 1_000
        apps.hear(apps.scene.node.expire(apps.scene.now_ms))
    assert apps.held("calm") == 1
    assert 5 <= apps.held("busy") <= 25


def test_a_thousand_tenants_share_as_well() -> None:
    apps = Apps(max_registrations=2_000)
    for number in range(1_000):
        apps.register("big", in_own("big", number))
    for tenant in range(1_000):
        assert apps.register(f"t{tenant}", in_own(f"t{tenant}", 1)) == "Activated"
    for number in range(500):
        assert apps.register("late", in_own("late", number)) == "Activated"
    assert apps.held("big") == 500
    assert all(apps.held(f"t{tenant}") == 1 for tenant in range(1_000))


def test_a_tenant_that_leaves_leaves_nothing_behind() -> None:
    apps = Apps()
    for number in range(5):
        apps.register("gone", unlike(number))
    node = apps.scene.node
    node.cancel(Cancellation(tenant="gone", query_id="", registration_ids=tuple(apps.owner)))
    assert node.largest_tenants() == []
    assert node._active.namespaces == {}
