"""The timeline of Wingerath's thesis, section 5.4.1: events of a sorted query with a limit, at each moment."""

from __future__ import annotations

from bson import Regex

from quaestor.incremental import ResultEvent
from quaestor.model import WriteKind
from tests.unit.matching.maintained.scene import Scene, find

QUERY = find(filter={"title": Regex("My Task")}, sort=(("title", 1),), limit=3)
OPERATIONS = {None: "none", **{kind: kind.value for kind in WriteKind}}


def printed(events: list[ResultEvent], *, initial: bool = False) -> list[str]:
    """As the example's callback prints them."""
    return [
        f"{event.match_type.value}/{OPERATIONS[event.operation]}{' (initial)' * initial}: {event.document['title']} "
        f"is at index {'undefined' if event.index is None else event.index}"
        for event in events
    ]


def titles(scene: Scene) -> list[str]:
    return [record["_id"] for record in scene.shown()]


def test_the_timeline_of_the_thesis() -> None:
    """Timestamps 1 to 14, one by one; odd ones are writes of user 2, even ones what user 1 receives."""
    # 1 and 2: task1 is in the initial result.
    scene = Scene(QUERY, [{"_id": "task1", "title": "My Task 1"}])
    assert printed(scene.maintained.initial_events(), initial=True) == ["add/none (initial): My Task 1 is at index 0"]

    # 3 and 4
    assert printed(scene.put("task2", title="My Task 2")) == ["add/insert: My Task 2 is at index 1"]
    assert titles(scene) == ["task1", "task2"]

    # 5 and 6
    assert printed(scene.put("task3", title="My Task 3")) == ["add/insert: My Task 3 is at index 2"]
    assert titles(scene) == ["task1", "task2", "task3"]

    # 7 and 8: task3 changes places with task2, which causes no event.
    moved = scene.put("task3", title="My Task 1b (former 3)")
    assert printed(moved) == ["changeIndex/update: My Task 1b (former 3) is at index 1"]
    assert titles(scene) == ["task1", "task3", "task2"]

    # 9 and 10: task2 is pushed beyond the limit by task0.
    assert printed(scene.put("task0", title="My Task 0")) == [
        "remove/none: My Task 2 is at index undefined",
        "add/insert: My Task 0 is at index 0",
    ]
    assert titles(scene) == ["task0", "task1", "task3"]

    # 11 and 12: task3 gets its old title back and leaves, task2 returns.
    assert printed(scene.put("task3", title="My Task 3")) == [
        "remove/update: My Task 3 is at index undefined",
        "add/none: My Task 2 is at index 2",
    ]
    assert titles(scene) == ["task0", "task1", "task2"]

    # 13 and 14: task3 is deleted, which nobody notices.
    assert printed(scene.delete("task3")) == []
    assert titles(scene) == ["task0", "task1", "task2"]


def test_a_delete_can_cause_an_add() -> None:
    """The thesis' remark at its end: removing a member pulls in the record behind the limit."""
    scene = Scene(QUERY, [{"_id": n, "title": f"My Task {n}"} for n in range(5)])
    assert printed(scene.delete(1)) == [
        "remove/delete: My Task 1 is at index undefined",
        "add/none: My Task 3 is at index 2",
    ]
    assert titles(scene) == [0, 2, 3]
