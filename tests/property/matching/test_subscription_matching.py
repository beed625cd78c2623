"""The cells' share of subscribed queries against brute force: random records, random queries, random writes, any partition."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from quaestor.errors import UnsupportedQueryError
from quaestor.event_layer.partitioning import write_partition
from quaestor.incremental import PriorState, plan_maintenance
from quaestor.incremental.sides import pack_members, sides_of
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.invalidation.matching.subscription_matching import AnnouncementError
from quaestor.model import AfterImage, Cell, GridShape, Operation, Query, WriteKind

Document = dict[str, Any]
FAR_MS = 10**15
NAMESPACES = ("db.things", "db.others")


@dataclass
class FollowedQuery:
    """A subscribed query as brute force sees it: its sides, and the records of each that match."""

    query: Query
    prior_state: PriorState
    sides: list[tuple[str, Any]]
    holds: list[set[Any]] = field(default_factory=list)


class Column:
    """All cells of one query partition, and the records that the writes have left."""

    def __init__(self, seed: int, write_partitions: int, *, images: bool) -> None:
        self.random = random.Random(seed)
        self.images = images
        self.partitions = write_partitions
        shape = GridShape(query_partitions=1, write_partitions=write_partitions)
        self.nodes = [
            MatchingNode(Cell(query_partition=0, write_partition=part), shape, retention_ms=FAR_MS)
            for part in range(write_partitions)
        ]
        self.records: dict[str, dict[Any, Document]] = {name: {} for name in NAMESPACES}
        self.followed: dict[str, FollowedQuery] = {}
        self.version = 1
        for node in self.nodes:
            node.process(AfterImage(namespace="*", kind=WriteKind.TICK, version=1), now_ms=0)

    def document(self, key: Any) -> Document:
        draw = self.random
        return {"_id": key, "a": draw.randrange(8), "n": draw.randrange(100), "w": draw.choice(["ant", "bee", "cat"])}

    def condition(self) -> Document:
        draw = self.random
        return draw.choice(
            [
                {"a": draw.randrange(8)},
                {"n": {"$gt": draw.randrange(100)}},
                {"w": draw.choice(["ant", "bee"]), "n": {"$lt": draw.randrange(100)}},
                {"$or": [{"a": draw.randrange(8)}, {"n": draw.randrange(100)}]},
                {"a": {"$ne": draw.randrange(8)}},
                {},
            ]
        )

    def query(self) -> Query:
        draw, condition = self.random, self.condition()
        if draw.random() < 0.3:
            lookup = {"from": "others", "localField": "a", "foreignField": "a", "as": "joined"}
            inner: list[Document] = [{"$match": self.condition()}] if draw.random() < 0.5 else []
            pipeline = ({"$match": condition}, {"$lookup": lookup | ({"pipeline": inner} if inner else {})})
            return Query(namespace="db.things", operation=Operation.AGGREGATE, filter={}, pipeline=pipeline)
        operation = draw.choice([Operation.FIND, Operation.COUNT])
        return Query(namespace="db.things", operation=operation, filter=condition)

    def write(self) -> tuple[AfterImage, Document | None]:
        draw = self.random
        self.version += 1
        namespace, key = draw.choice(NAMESPACES), draw.randrange(40)
        records = self.records[namespace]
        before = records.get(key)
        after = None if before is not None and draw.random() < 0.3 else self.document(key)
        if after is None:
            kind = WriteKind.DELETE
            del records[key]
        else:
            kind = WriteKind.INSERT if before is None else WriteKind.REPLACE
            records[key] = after
        known = self.images or before is None
        image = AfterImage(
            namespace=namespace, kind=kind, version=self.version, key=key, after=after, after_exact=after is not None,
            before=before if known else None, before_known=known,
        )  # fmt: skip
        return image, before

    def follow(self) -> str | None:
        """Announce a random query; returns its name unless it cannot be maintained."""
        query = self.query()
        prior_state = self.random.choice([*PriorState]) if self.images else PriorState.MEMBERSHIP
        try:
            maintenance = plan_maintenance(query, prior_state)
        except UnsupportedQueryError:
            return None
        prior_state = maintenance.prior_state
        sides = [(side.namespace, side.predicate.matches) for side in sides_of(maintenance)]
        name = f"q{len(self.followed)}"
        followed = FollowedQuery(query, prior_state, sides)
        for namespace, matches in sides:
            followed.holds.append({key for key, record in self.records[namespace].items() if matches(record)})
        self.announce(name, followed)
        return name

    def announce(self, name: str, followed: FollowedQuery) -> None:
        split = [
            pack_members(namespace, held, self.partitions)
            for (namespace, _), held in zip(followed.sides, followed.holds, strict=True)
        ]
        for part, node in enumerate(self.nodes):
            members = None if followed.prior_state is PriorState.BEFORE_IMAGES else [side[part] for side in split]
            replayed = node.subscriptions.announce(
                name, "token", followed.query, prior_state=followed.prior_state, version=self.version, members=members,
                expires_at_ms=FAR_MS,
            )  # fmt: skip
            assert not replayed
        self.followed[name] = followed

    def concerned(self, image: AfterImage, before: Document | None) -> Iterator[str]:
        """Brute force, by the records themselves."""
        for name, followed in self.followed.items():
            for (namespace, matches), held in zip(followed.sides, followed.holds, strict=True):
                if namespace != image.namespace:
                    continue
                was = image.key in held
                now = image.after is not None and matches(image.after)
                (held.add if now else held.discard)(image.key)
                if was or now:
                    yield name


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("images", [False, True])
def test_a_write_concerns_exactly_the_queries_that_brute_force_finds(partitions: int, images: bool) -> None:
    """Any query, one-sided or joined, by membership or by before-images, also while queries come and go."""
    for seed in range(12):
        column = Column(seed, partitions, images=images)
        for _ in range(30):
            _process(column)
        for _ in range(25):
            column.follow()
        hits = 0
        for number in range(150):
            if number % 10 == 0:
                column.follow()
                gone = column.random.choice(sorted(column.followed))
                del column.followed[gone]
                for node in column.nodes:
                    node.subscriptions.end(gone)
            expected, events = _process(column)
            assert events == expected, f"seed {seed}, write {number}"
            hits += len(expected)
        assert hits > 100


def _process(column: Column) -> tuple[set[str], set[str]]:
    image, before = column.write()
    node = column.nodes[write_partition(image.key, column.partitions)]
    expected = set(column.concerned(image, before))
    node.process(image, now_ms=0)
    return expected, set(node.subscriptions.take())


def test_an_announcement_replays_what_was_written_since_it_was_read() -> None:
    """The race between reading a result and announcing it: every write after the read is found, deletes of members too."""
    for seed in range(40):
        column = Column(seed, 2, images=False)
        for _ in range(30):
            _process(column)
        query = Query(namespace="db.things", operation=Operation.FIND, filter=column.condition())
        ((namespace, matches),) = [
            (side.namespace, side.predicate.matches) for side in sides_of(plan_maintenance(query))
        ]
        held = {key for key, record in column.records[namespace].items() if matches(record)}
        read_at, split = column.version, pack_members(namespace, held, 2)
        expected: list[int] = []
        for _ in range(20):
            image, _ = column.write()
            was, now = image.key in held, image.after is not None and matches(image.after)
            if image.namespace == namespace and (was or now):
                expected.append(image.version)
                (held.add if now else held.discard)(image.key)
            column.nodes[write_partition(image.key, 2)].process(image, now_ms=0)
        replayed: list[int] = []
        for part, node in enumerate(column.nodes):
            images = node.subscriptions.announce(
                "q",
                "t",
                query,
                prior_state=PriorState.MEMBERSHIP,
                version=read_at,
                members=[split[part]],
                expires_at_ms=FAR_MS,
            )
            replayed += [image.version for image in images]
        assert sorted(replayed) == expected


def test_changes_no_longer_retained_cannot_be_announced() -> None:
    """A read from before the retained writes is refused, and may be tried again with a newer one."""
    column = Column(1, 1, images=False)
    query = Query(namespace="db.things", operation=Operation.FIND, filter={})
    with pytest.raises(AnnouncementError, match="only retained after 1") as refused:
        column.nodes[0].subscriptions.announce(
            "q", "t", query, prior_state=PriorState.MEMBERSHIP, version=0, members=[b""], expires_at_ms=FAR_MS
        )
    assert not refused.value.final


def test_queries_that_cannot_match_cost_a_write_nothing() -> None:
    """Selectivity: of a thousand subscribed queries only the ones that the record can satisfy, or that hold it,
    are tried.
    """
    node = MatchingNode(
        Cell(query_partition=0, write_partition=0),
        GridShape(query_partitions=1, write_partitions=1),
        retention_ms=FAR_MS,
    )
    node.process(AfterImage(namespace="*", kind=WriteKind.TICK, version=1), now_ms=0)
    for number in range(1_000):
        query = Query(namespace="db.c", operation=Operation.FIND, filter={"a": number})
        (share,) = pack_members("db.c", [f"member of {number}"], 1)
        node.subscriptions.announce(
            f"q{number}",
            "t",
            query,
            prior_state=PriorState.MEMBERSHIP,
            version=1,
            members=[share],
            expires_at_ms=FAR_MS,
        )
    node.process(
        AfterImage(namespace="db.c", kind=WriteKind.INSERT, version=2, key=1, after={"_id": 1, "a": 7}), now_ms=0
    )
    assert node.tally.tried_last == 1
    assert node.subscriptions.take() == ("q7",)
    image = AfterImage(namespace="db.c", kind=WriteKind.DELETE, version=3, key="member of 500")
    node.process(image, now_ms=0)
    assert node.tally.tried_last == 0
    assert node.subscriptions.take() == ("q500",)


def test_nothing_is_left_of_queries_that_ended() -> None:
    """The node returns to its first state after any announcements, replacements, ends and expiries."""
    column = Column(5, 1, images=True)
    for _ in range(20):
        _process(column)
    names = [name for _ in range(40) if (name := column.follow())]
    (node,) = column.nodes
    assert len(node.subscriptions) == len(names)
    for name in names[:20]:
        column.announce(name, column.followed[name])
        node.subscriptions.end(name)
        node.subscriptions.end(name)
    node.subscriptions.expire(FAR_MS)
    assert len(node.subscriptions) == 0
    image, _ = column.write()
    node.process(image, now_ms=0)
    assert node.subscriptions.take() == ()
    assert node.queries == 0
    assert not node._active.namespaces


def test_a_membership_that_outgrows_its_announcement_is_noticed() -> None:
    """A window announces few records, but every match is remembered: at some point it has to be announced anew."""
    column = Column(1, 1, images=False)
    query = Query(namespace="db.things", operation=Operation.FIND, filter={}, sort=(("n", 1),), limit=1)
    (node,) = column.nodes
    node.subscriptions.announce(
        "q", "t", query, prior_state=PriorState.MEMBERSHIP, version=1, members=[b""], expires_at_ms=FAR_MS
    )  # fmt: skip
    for number in range(10_001):
        assert not list(node.subscriptions.crowded(["q"]))
        image = AfterImage(
            namespace="db.things", kind=WriteKind.INSERT, version=number + 2, key=number, after={"_id": number}
        )
        node.process(image, now_ms=0)
    assert [query.query_id for query in node.subscriptions.crowded(["q"])] == ["q"]
