"""The transition table says what the read path promises."""

from __future__ import annotations

from quaestor.read_path.decision import TERMINAL, TRANSITIONS, Event, State


def reachable(start: State, *, without: set[Event] = frozenset()) -> set[State]:
    states = {start}
    while True:
        more = {to for (state, event), to in TRANSITIONS.items() if state in states and event not in without}
        if more <= states:
            return states
        states |= more


def test_every_state_is_reachable_and_every_other_one_leads_on() -> None:
    assert reachable(State.RECEIVED) == set(State)
    assert {state for state, _ in TRANSITIONS} == set(State) - TERMINAL
    assert {event for _, event in TRANSITIONS} == set(Event)


def test_every_state_that_is_not_final_can_end() -> None:
    for state in set(State) - TERMINAL:
        assert reachable(state) & TERMINAL


def test_a_handler_s_answer_is_served_with_leave_only_after_registering_and_keeping() -> None:
    running = reachable(State.RUNNING, without={Event.KEPT, Event.SERVED_ON_ERROR, Event.MISLED})
    assert State.SERVED not in running
    assert State.KEEPING not in reachable(State.RUNNING, without={Event.REGISTERED})
    assert State.SERVED not in reachable(State.REGISTERING, without={Event.KEPT})
    assert [key for key, to in TRANSITIONS.items() if to is State.SERVED] == [
        (State.LOOKING, Event.FOUND),
        (State.RUNNING, Event.SERVED_ON_ERROR),
        (State.KEEPING, Event.KEPT),
    ]


def test_an_answer_that_is_complete_is_sent_after_any_later_failure() -> None:
    for event in (Event.UNGUARDED, Event.DIED, Event.PART_FAILED):
        [to] = {to for (_, on), to in TRANSITIONS.items() if on is event}
        assert to is State.WITHHELD
