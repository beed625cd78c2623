"""Due times against a dictionary, in every order of calls, and the keys that a look touches."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from quaestor.realtime.due_times import DueTimes

CALLS = st.lists(
    st.tuples(st.sampled_from(["schedule", "cancel", "due", "clear"]), st.integers(0, 5), st.integers(0, 20)),
    max_size=60,
)


@given(calls=CALLS)
def test_due_times_equal_those_of_a_dictionary(calls: list[tuple[str, int, int]]) -> None:
    """The earliest time is always the smallest one, and keys become due in the order of their times."""
    times: DueTimes[int] = DueTimes()
    model: dict[int, int] = {}
    for name, key, at_ms in calls:
        match name:
            case "schedule":
                times.schedule(key, at_ms)
                model[key] = at_ms
            case "cancel":
                times.cancel(key)
                model.pop(key, None)
            case "clear":
                times.clear()
                model.clear()
            case "due":
                due = [(model[each], each) for each in times.due(at_ms)]
                assert [due_ms for due_ms, _ in due] == sorted(due_ms for due_ms in model.values() if due_ms <= at_ms)
                for _, each in due:
                    del model[each]
        assert times.earliest_ms == min(model.values(), default=None)
        assert len(times) == len(model)


class CountedKey:
    """A key that counts how often any key is looked up."""

    looked_up = 0

    def __hash__(self) -> int:
        CountedKey.looked_up += 1
        return id(self)


def test_a_look_at_the_earliest_time_touches_one_key() -> None:
    """However many keys wait."""
    times: DueTimes[CountedKey] = DueTimes()
    for due_ms in range(1_000):
        times.schedule(CountedKey(), due_ms)
    before = CountedKey.looked_up
    assert times.earliest_ms == 0
    assert CountedKey.looked_up - before == 1


def test_a_due_time_advances_to_an_earlier_one_only() -> None:
    times: DueTimes[str] = DueTimes()
    for due_ms in (5, 7, 3, 4):
        times.advance("a", due_ms)
    assert times.earliest_ms == 3
    assert list(times.due(3)) == ["a"]
