"""Queries are run again before what relies on them is evicted where that costs less than it saves, within a budget."""

from __future__ import annotations

from quaestor.invalidation.registry.recheck_rule import MOST_PER_SECOND, MOST_WAITING, RecheckRule

QUERY = "q"


def rule(mode: str = "auto", *, query_ms: float = 10.0, answer_ms: float = 30.0) -> RecheckRule:
    made = RecheckRule(mode)
    made.registered(QUERY, query_ms=query_ms)
    made.answered(QUERY, cost_ms=answer_ms)
    return made


def wanted(recheck_rule: RecheckRule, *, second: int, waiting: int = 0) -> bool:
    return recheck_rule.wanted(QUERY, now_ms=second * 1_000, waiting=waiting)


def test_a_query_whose_answers_are_dear_and_asked_for_is_run_again() -> None:
    """Half of the results are taken to be the same before anything is known: 0.5 x 1 x 30 ms is more than 10 ms."""
    recheck_rule = rule()
    recheck_rule.served(QUERY, 1)
    assert wanted(recheck_rule, second=1)


def test_an_answer_that_costs_nothing_but_its_query_is_kept_only_if_most_results_stay() -> None:
    """Running the query again costs as much as the miss, so it has to be in vain hardly ever."""
    recheck_rule = rule(answer_ms=10.5)
    assert not recheck_rule.pays(QUERY)
    for _ in range(50):
        recheck_rule.rechecked(QUERY, kept=True, query_ms=10.0)
    assert recheck_rule.pays(QUERY)
    recheck_rule.rechecked(QUERY, kept=False, query_ms=10.0)
    assert not recheck_rule.pays(QUERY)


def test_an_entry_unread_between_two_changes_is_evicted() -> None:
    """There is no miss to be saved; now and then it is tried all the same."""
    recheck_rule = rule()
    chosen = [wanted(recheck_rule, second=second) for second in range(100)]
    assert sum(chosen[20:]) == 10
    for second in range(100, 110):
        recheck_rule.served(QUERY, 3)
        chosen = [wanted(recheck_rule, second=second)]
    assert chosen == [True]


def test_a_burst_is_rechecked_a_few_times_a_second() -> None:
    """As often as a tenth of a second allows, within bounds."""
    for query_ms, most in ((0.1, MOST_PER_SECOND), (10.0, 10), (1_000.0, 5)):
        recheck_rule = rule("on", query_ms=query_ms)
        assert sum(wanted(recheck_rule, second=1) for _ in range(100)) == most
        assert wanted(recheck_rule, second=2)


def test_waiting_entries_are_bounded() -> None:
    assert not wanted(rule("on"), second=1, waiting=MOST_WAITING)


def test_the_setting_decides_before_any_cost() -> None:
    """ "on" rechecks at any cost, "off" never; a query without a registration is never rechecked."""
    assert wanted(rule("on", answer_ms=0.0), second=1)
    assert not wanted(rule("off"), second=1)
    assert not RecheckRule("on").wanted("unknown", now_ms=0, waiting=0)
