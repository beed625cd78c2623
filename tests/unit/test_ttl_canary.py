"""A canary of lifetimes: what is counted, what is predicted from a trace, and the rule between them."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from typing import Any

import pytest

from quaestor.errors import ConfigurationError
from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.event_layer.partitioning import query_hash, query_partition
from quaestor.observability.telemetry import Telemetry
from quaestor.simulation.canary_prediction import counted, predicted_of
from quaestor.ttl.baselines import StaticTtl
from quaestor.ttl.canary import Canary, Prediction, canary_of, in_canary, result_of
from quaestor.ttl.canary_arm import CanaryArm
from quaestor.ttl.canary_counts import Counts, Meter
from quaestor.ttl.canary_guards import NO_GUARDS, Guards, guards_of
from quaestor.ttl.canary_rule import LEAST, TOLERANCE, Verdict, judged, wilson
from quaestor.ttl.canary_watch import CanaryWatch, OwnReports, ProcessCounts, process_counts_of, promotable
from quaestor.ttl.chosen import ChosenEstimators
from quaestor.ttl.parameters import TtlParameters, Tuning
from quaestor.ttl.published import PublishedParameters
from quaestor.ttl.trace_format import Changed, Filled, Record, Served

NOW_MS = 1_700_000_000_000
SHORT = TtlParameters(default=Tuning(estimator="static", static_ms=5_000))
LONG = TtlParameters(default=Tuning(estimator="static", static_ms=60_000))
REST = Counts(requests=9_000, hits=4_500, lifetimes=4_000, invalidations=800, stale=100)
SAME = {name: Prediction(0.0, 0.0, 0.5, 0.5) for name in ("hits", "invalidations", "stale")}


def canary(**given: object) -> Canary:
    return Canary(**({"parameters": LONG, "share": 10, "predicted": SAME} | given))  # type: ignore[arg-type]


def traffic(
    seed: int, *, seconds: int = 600, results: int = 150, change_s: float = 20.0, skew: float = 0.8, requests: int = 40
) -> Iterator[Record]:
    """Requests of a Zipf, each result changed on average once in so many seconds; what was filled stays until it changes."""
    dice = random.Random(seed)
    weights = [1 / (i + 1) ** skew for i in range(results)]
    stored: set[int] = set()
    for second in range(seconds):
        at_ms = second * 1_000
        for number in range(results):
            if dice.random() < 1 / change_s and number in stored:
                stored.discard(number)
                yield Changed(at_ms, f"q{number}")
        times: dict[int, int] = {}
        for choice in dice.choices(range(results), weights, k=requests):
            times[choice] = times.get(choice, 0) + 1
        for result, count in times.items():
            if result not in stored:
                stored.add(result)
                yield Filled(at_ms, f"r{result}", (f"q{result}",), 5_000, None, 1 / change_s, "db.items")
                count -= 1
            if count:
                yield Served(at_ms + 999, f"r{result}", count)


def report_all(records: Iterator[Record], estimator: ChosenEstimators) -> None:
    """Report each record to an app's estimator, as its read path does."""
    for record in records:
        now_ms = NOW_MS + record.at_ms
        match record:
            case Filled():
                given_ms = estimator.estimate_ms(
                    record.queries, write_rate_hz=record.rate_hz, now_ms=now_ms, kind=record.kind
                )
                estimator.observe_read(
                    record.queries, now_ms=now_ms, given_ms=given_ms, write_rate_hz=record.rate_hz, kind=record.kind
                )
            case Served():
                assert estimator.canary is not None
                name = f"p:1#{query_hash('q' + record.result[1:]):016x}"
                estimator.canary.served([((name,), record.times)], now_ms=now_ms)
            case Changed():
                estimator.observe_invalidation(record.query, now_ms=now_ms)


def test_a_request_that_a_copy_could_have_answered_is_a_hit_and_a_change_before_the_end_an_invalidation() -> None:
    counts = Counts()
    meter = Meter(lambda result: counts, delta_ms=2_000)
    meter.served("r", 5, now_ms=NOW_MS)
    assert counts == Counts()  # filled before this began
    meter.filled("r", ["a", "b"], now_ms=NOW_MS, given_ms=10_000)
    meter.served("r", 3, now_ms=NOW_MS + 10_000)
    assert counts == Counts(requests=4, hits=3, lifetimes=1)
    meter.served("r", 3, now_ms=NOW_MS + 10_001)  # the first of them begins another lifetime
    assert counts == Counts(requests=7, hits=5, lifetimes=2)
    meter.changed("b", now_ms=NOW_MS + 12_000)
    meter.changed("a", now_ms=NOW_MS + 12_000)
    assert counts.invalidations == 1
    meter.served("r", 1, now_ms=NOW_MS + 12_000)  # of an entry that this process does not know to be dead
    meter.filled("r", ["a", "b"], now_ms=NOW_MS + 13_000, given_ms=1_000)
    meter.served("r", 2, now_ms=NOW_MS + 13_500)
    assert counts == Counts(requests=10, hits=7, lifetimes=3, invalidations=1, stale=3)
    meter.changed("a", now_ms=NOW_MS + 15_000)  # its time was over
    meter.filled("r", ["a", "b"], now_ms=NOW_MS + 15_500, given_ms=1_000)
    meter.withdrawn("a")
    meter.changed("a", now_ms=NOW_MS + 15_600)  # nobody was watching
    assert counts == Counts(requests=11, hits=7, lifetimes=4, invalidations=1, stale=3)


def test_followed_queries_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quaestor.ttl.canary_counts.MOST_RESULTS", 10)
    meter = Meter(lambda result: Counts(), delta_ms=1_000)
    for i in range(100):
        meter.filled(i, ["all", i], now_ms=NOW_MS, given_ms=1_000)
    assert len(meter) == 10
    assert set(meter._results) == {"all", *range(90, 100)}
    meter.changed("all", now_ms=NOW_MS)


def test_members_of_a_canary_are_the_same_everywhere_and_as_many_as_chosen() -> None:
    """Membership depends on the queries, in any order of the reads, and is equally frequent in every query partition."""
    ids = [f"{i:032x}" for i in range(20_000)]
    own = [result_id for result_id in ids if in_canary(result_of([query_hash(result_id)]), 10)]
    assert 0.09 < len(own) / len(ids) < 0.11
    by_partition = [sum(query_partition(result_id, 4) == partition for result_id in own) for partition in range(4)]
    assert min(by_partition) > 0.2 * len(own)
    assert result_of([1, 2, 2]) == result_of([2, 1])
    assert set(own) <= {result_id for result_id in ids if in_canary(result_of([query_hash(result_id)]), 20)}
    arm = CanaryArm(canary(), ChosenEstimators(LONG, false_positive_rate=lambda keys: 0.0))
    assert [result_id for result_id in ids if arm.has([result_id])] == own


def test_wilsons_interval_is_the_known_one_and_closes_with_observations() -> None:
    """Newcombe (Statistics in Medicine 1998), table I: 81 of 263, 15 of 148, 0 of 20, 1 of 29, at 95 %."""
    assert wilson(81, 263, 1.959964) == pytest.approx((0.2553, 0.3662), abs=6e-5)
    assert wilson(15, 148, 1.959964) == pytest.approx((0.0624, 0.1605), abs=6e-5)
    assert wilson(0, 20, 1.959964) == pytest.approx((0.0, 0.1611), abs=6e-5)
    assert wilson(1, 29, 1.959964) == pytest.approx((0.0061, 0.1718), abs=6e-5)
    assert wilson(0, 0) == (0.0, 1.0)
    assert wilson(5_000, 10_000)[1] < wilson(50, 100)[1]


@pytest.mark.parametrize(
    ("own", "rest", "verdict"),
    [
        (Counts(requests=1_999, hits=1_000, lifetimes=500, invalidations=100), REST, "waiting"),
        (Counts(requests=2_000, hits=1_000, lifetimes=500, invalidations=100), REST, "inside"),
        (Counts(requests=2_000, hits=1_990, lifetimes=500, invalidations=2), REST, "inside"),
        (Counts(requests=2_000, hits=500, lifetimes=500, invalidations=100), REST, "worse"),
        (Counts(requests=2_000, hits=1_000, lifetimes=500, invalidations=300), REST, "worse"),
        (Counts(requests=2_000, hits=1_000, lifetimes=500, invalidations=100, stale=900), REST, "worse"),
        (Counts(requests=LEAST - 1, hits=0, lifetimes=LEAST - 1), Counts(requests=9_000, hits=4_500, lifetimes=4_000), "waiting"),
        (Counts(requests=5_000, hits=0, lifetimes=5_000), Counts(requests=LEAST - 1, hits=50, lifetimes=50), "waiting"),
        (Counts(), Counts(), "waiting"),
    ],
)  # fmt: skip
def test_a_canary_is_worse_when_a_figure_lies_beyond_the_bad_end_of_the_band_and_nothing_is_said_before(
    own: Counts, rest: Counts, verdict: str
) -> None:
    """Fewer hits, more invalidations, more that is stale; what is better than predicted is not held against it."""
    judgement = judged(canary(), own, rest, cdn=False)
    assert judgement.verdict == verdict
    assert bool(judgement.why) == (verdict == "worse")
    json.dumps(judgement.plain(), allow_nan=False)


def test_behind_a_cdn_hits_are_not_compared_because_the_app_does_not_see_them() -> None:
    own = Counts(requests=5_000, hits=0, lifetimes=5_000)
    rest = Counts(requests=9_000, hits=4_500, lifetimes=4_500)
    assert judged(canary(), own, rest, cdn=False).verdict is Verdict.WORSE
    judgement = judged(canary(), own, rest, cdn=True)
    assert (judgement.verdict, [figure.name for figure in judgement.figures]) == (
        Verdict.INSIDE,
        ["invalidations", "stale"],
    )


def test_the_band_follows_the_rest() -> None:
    """The same prediction at another hour: the odds move together, the ratio stays."""
    predicted = {"hits": Prediction(math.log(2), math.log(2), 0.5, 2 / 3)}
    for share in (0.2, 0.5, 0.8):
        rest = Counts(requests=1_000_000, hits=int(share * 1_000_000))
        (figure,) = judged(canary(predicted=predicted), Counts(requests=1_000, hits=500), rest, cdn=False).figures
        odds = share / (1 - share)
        assert figure.low == pytest.approx(1 / (1 + 1 / (2 * odds * math.exp(-TOLERANCE))), rel=0.01)
        assert figure.high == pytest.approx(1 / (1 + 1 / (2 * odds * math.exp(TOLERANCE))), rel=0.01)


def test_longer_lifetimes_are_predicted_to_bring_hits_and_invalidations() -> None:
    figures = predicted_of(list(traffic(1)), now=SHORT, chosen=LONG, share=10, delta_ms=10_000, started_ms=NOW_MS)
    assert figures["invalidations"].low > 0 < figures["hits"].high
    assert figures["hits"].chosen > figures["hits"].now
    same = predicted_of(list(traffic(1)), now=SHORT, chosen=SHORT, share=10, delta_ms=10_000, started_ms=NOW_MS)
    assert all(figure.low < 0 < figure.high for figure in same.values())
    assert all(figure.now == figure.chosen for figure in same.values())


@pytest.mark.parametrize("seed", range(3))
def test_a_canary_that_does_what_was_predicted_is_never_called_worse(seed: int) -> None:
    """Other traffic of the same kind, other results in the canary, a look every few seconds from the first one on."""
    predicted = predicted_of(list(traffic(100 + seed)), now=SHORT, chosen=LONG, share=10, delta_ms=10_000, started_ms=0)
    chosen = canary(predicted=predicted)
    estimator = ChosenEstimators(SHORT, false_positive_rate=lambda keys: 0.0)
    estimator.take_up(SHORT, chosen)
    arm = estimator.canary
    assert arm is not None
    records = list(traffic(seed))
    for i in range(0, len(records), 200):
        report_all(iter(records[i : i + 500]), estimator)
        judgement = judged(chosen, arm.own, arm.rest, cdn=False)
        assert judgement.verdict is not Verdict.WORSE, judgement.why
    assert judgement.verdict is Verdict.INSIDE


def test_a_canary_that_does_something_else_than_was_predicted_is_called_worse() -> None:
    """Predicted was a lifetime twelve times as long; what is applied is one of a moment. Where no result is asked for far more
    than the others: then the prediction is narrow."""
    many: dict[str, Any] = {"seconds": 200, "results": 400, "change_s": 60.0, "skew": 0.3, "requests": 100}
    records = list(traffic(1, **many))
    predicted = predicted_of(records, now=SHORT, chosen=LONG, share=10, delta_ms=10_000, started_ms=0)
    chosen = canary(predicted=predicted, parameters=TtlParameters(default=Tuning(estimator="static", static_ms=1_000)))
    estimator = ChosenEstimators(SHORT, false_positive_rate=lambda keys: 0.0)
    estimator.take_up(SHORT, chosen)
    assert estimator.canary is not None
    report_all(traffic(2, **many), estimator)
    judgement = judged(chosen, estimator.canary.own, estimator.canary.rest, cdn=False)
    assert judgement.verdict is Verdict.WORSE
    assert judgement.why.startswith("hits: ")


def test_a_trace_with_too_little_in_it_predicts_nothing() -> None:
    records = list(traffic(1, seconds=2, results=5))
    with pytest.raises(ConfigurationError, match="record for longer"):
        predicted_of(records, now=SHORT, chosen=LONG, share=10, delta_ms=1_000, started_ms=0)
    assert (
        counted(
            [record._replace(given_ms=None) for record in records if isinstance(record, Filled)],
            StaticTtl(1),
            delta_ms=1,
        )
        == {}
    )


def test_a_canarys_results_have_its_lifetimes_and_the_others_go_on_as_before() -> None:
    """While it lasts; what the others' estimator has learned is there afterwards, also of the canary's results."""
    estimator = ChosenEstimators(TtlParameters(), false_positive_rate=lambda keys: 0.0)
    estimator.take_up(TtlParameters(), canary(share=50))
    assert estimator.canary is not None
    ids = [f"{i:032x}" for i in range(200)]
    own = [result_id for result_id in ids if estimator.canary.has([result_id])]
    for result_id in ids:
        ttl_ms = estimator.estimate_ms([result_id], write_rate_hz=0, now_ms=NOW_MS)
        assert ttl_ms == (60_000 if result_id in own else 3_600_000)
        estimator.observe_read([result_id], now_ms=NOW_MS, given_ms=ttl_ms)
    for result_id in ids:
        reasons = estimator.reasons([result_id], write_rate_hz=0, now_ms=NOW_MS, kind="")
        assert ("canary" in reasons) == (result_id in own)
        estimator.observe_invalidation(result_id, now_ms=NOW_MS + 100_000)
    assert (estimator.canary.own.requests, estimator.canary.rest.requests) == (len(own), len(ids) - len(own))
    assert estimator.canary.own.invalidations == 0  # they were over before
    assert estimator.canary.rest.invalidations == len(ids) - len(own)
    estimator.take_up(TtlParameters())
    assert estimator.canary is None
    assert {estimator.estimate_ms([result_id], write_rate_hz=0, now_ms=NOW_MS + 100_000) for result_id in ids} == {
        69_314
    }


def test_names_of_strangers_in_shared_entries_are_passed_over() -> None:
    arm = CanaryArm(canary(), ChosenEstimators(LONG, false_positive_rate=lambda keys: 0.0))
    arm.served([((), 1), (("no-hash",), 1), (("p:1#xyz",), 1), (("p:1#",), 2)], now_ms=NOW_MS)
    assert arm.rest == arm.own == Counts()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"share": 0}, "share of a canary must"),
        ({"share": 51}, "share of a canary must"),
        ({"share": True}, "share of a canary must"),
        ({"after": 99}, "after of a canary"),
        ({"hold_ms": -1}, "hold_ms of a canary"),
        ({"delta_ms": 0}, "delta_ms of a canary"),
        ({"promote": 1}, "promote must be"),
        ({"predicted": {}}, "needs a prediction"),
        (
            {"guards": Guards(stale_at_most=0.4)},
            "stale is 0.5000 with these parameters, above the guard stale_at_most of 0.4",
        ),
        (
            {"guards": Guards(hits_at_least=0.6)},
            "hits is 0.5000 with these parameters, below the guard hits_at_least of 0.6",
        ),
        ({"predicted": {"hits": Prediction(1, 0, 0, 0)}}, "the prediction of 'hits'"),
        ({"predicted": {"hits": Prediction(0, math.inf, 0, 0)}}, "the prediction of 'hits'"),
    ],
)
def test_a_canary_that_cannot_be_is_refused_by_name(given: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        canary(**given)


def test_a_canary_is_the_same_after_it_was_written_down_and_nonsense_is_none() -> None:
    plain = json.loads(json.dumps(canary(promote=True).plain()))
    assert canary_of(plain) == canary(promote=True)
    for change in ({"more": 1}, {"predicted": []}, {"predicted": {"hits": [1]}}, {"parameters": 7}):
        with pytest.raises(ConfigurationError):
            canary_of(plain | change)
    for nonsense in (None, [], {}):
        with pytest.raises(ConfigurationError):
            canary_of(nonsense)


def test_processes_of_an_older_version_read_of_a_canary_what_counts_for_the_rest() -> None:
    layer = MemoryEventLayer(clock=lambda: NOW_MS)
    published = PublishedParameters(layer, scope="d")
    published.publish(SHORT, base=0, by="ann", now_ms=NOW_MS)
    begun = published.begin_canary(canary(), base=1, by="ann", now_ms=NOW_MS)
    assert (begun.number, begun.parameters, begun.canary) == (2, SHORT, canary())
    (entry,) = layer.read({"quaestor:{d:ttl}:parameters": "0"}, count=10, block_ms=0)[1:]
    assert json.loads(entry.payload)["parameters"] == json.loads(SHORT.encoded())
    with pytest.raises(ConfigurationError, match="ann has applied other parameters meanwhile"):
        published.begin_canary(canary(), base=1, by="bob", now_ms=NOW_MS)
    undone = PublishedParameters(layer, scope="d").rollback(by="bob", now_ms=NOW_MS)
    assert (undone.parameters, undone.canary) == (SHORT, None)


@pytest.mark.anyio
@pytest.mark.parametrize("promote", [False, True])
async def test_it_is_rolled_back_after_it_was_worse_for_long_enough_and_promoted_only_if_that_was_asked_for(
    promote: bool,
) -> None:
    layer, telemetry = MemoryEventLayer(clock=lambda: NOW_MS), Telemetry()
    published = PublishedParameters(layer, scope="d")
    running = canary(hold_ms=30_000, promote=promote)
    begun = published.begin_canary(running, base=0, by="ann", now_ms=NOW_MS)
    arm = CanaryArm(running, ChosenEstimators(LONG, false_positive_rate=lambda keys: 0.0))
    watches = [CanaryWatch(published, OwnReports(), telemetry) for _ in range(2)]
    good, bad = Counts(requests=3_000, hits=1_500, lifetimes=900), Counts(requests=9_000, hits=100, lifetimes=900)
    arm.rest = Counts(requests=9_000, hits=4_500, lifetimes=900)
    if promote:
        arm.own = good
        ended = await watches[0].look(begun, arm, cdn=False, now_ms=NOW_MS)
        assert ended is not None
        assert (ended.parameters, ended.canary) == (LONG, None)
        assert ended.why.startswith("promoted: ")
        return
    for at_ms, counts in ((0, bad), (29_999, bad), (30_000, good), (31_000, bad), (60_999, bad)):
        arm.own = counts
        for watch in watches:
            assert await watch.look(begun, arm, cdn=False, now_ms=NOW_MS + at_ms) is None
    ended = await watches[0].look(begun, arm, cdn=False, now_ms=NOW_MS + 61_000)
    assert ended is not None
    assert (ended.number, ended.parameters, ended.canary) == (2, None, None)
    assert ended.why.startswith("rolled back: hits: 0.0111 (")
    assert ended.by.startswith("quaestor (")
    assert await watches[1].look(begun, arm, cdn=False, now_ms=NOW_MS + 61_000) is None  # the other was faster
    exposed = telemetry.exposition().decode()
    assert 'quaestor_ttl_canaries_ended_total{how="rolled-back"} 1.0' in exposed
    assert 'quaestor_ttl_canary_figures{figure="hits",of="rest"} 0.5' in exposed


@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan, True, "0.1", [0.1]])
@pytest.mark.parametrize("name", ["stale_at_most", "hits_at_least"])
def test_a_guard_that_is_no_share_is_refused(name: str, value: object) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} of a canary must be a share in 0..1"):
        guards_of({name: value})
    with pytest.raises(ConfigurationError, match="guards of a canary are an object"):
        guards_of({"misses_at_most": 0.1})


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("guards", "said"),
    [
        (Guards(stale_at_most=0.6), "rolled back: guard stale at most 0.6: broken, 0.8000 ("),
        (Guards(hits_at_least=0.4), "rolled back: guard hits at least 0.4: broken, 0.2000 ("),
        (NO_GUARDS, None),
    ],
)
async def test_a_canary_that_does_what_was_predicted_ends_at_once_if_that_breaks_a_guard(
    guards: Guards, said: str | None
) -> None:
    """Canary and rest have turned bad alike, so the band has followed: only a guard sees it. Its log entry tells every process
    of the guard; one of an older version reads the canary without it."""
    layer = MemoryEventLayer(clock=lambda: NOW_MS)
    published = PublishedParameters(layer, scope="d")
    running = canary(hold_ms=3_600_000, promote=True, guards=guards)
    published.begin_canary(running, base=0, by="ann", now_ms=NOW_MS)
    begun = PublishedParameters(layer, scope="d").history()[-1]
    assert begun.canary == running
    assert (
        "guards"
        not in json.loads(layer.read({"quaestor:{d:ttl}:parameters": "0"}, count=1, block_ms=0)[0].payload)["canary"]
    )
    arm = CanaryArm(running, ChosenEstimators(LONG, false_positive_rate=lambda keys: 0.0))
    arm.own = Counts(requests=9_000, hits=1_800, lifetimes=900, stale=7_200)
    arm.rest = Counts(requests=9_000, hits=1_800, lifetimes=900, stale=7_200)
    ended = await CanaryWatch(published, OwnReports(), Telemetry()).look(begun, arm, cdn=False, now_ms=NOW_MS)
    assert ended is not None
    if said is None:
        assert ended.why.startswith("promoted: ")
    else:
        assert (ended.parameters, ended.why.startswith(said)) == (None, True), ended.why


def test_a_guard_is_broken_by_its_whole_interval_and_hinders_a_promotion_before() -> None:
    """A few unlucky requests end nothing; a share beyond the limit is not promoted; hits behind a CDN are not judged."""
    running = canary(after=100, guards=Guards(stale_at_most=0.6, hits_at_least=0.4))
    begun = PublishedParameters(MemoryEventLayer(clock=lambda: NOW_MS), scope="d").begin_canary(
        running, base=0, by="ann", now_ms=NOW_MS
    )
    for own, cdn, verdict, said in (
        (
            Counts(requests=99, stale=99, lifetimes=100),
            False,
            Verdict.WAITING,
            "guard stale at most 0.6: not judged yet",
        ),
        (
            Counts(requests=200, hits=100, stale=124, lifetimes=100),
            False,
            Verdict.WAITING,
            "not kept, within the interval",
        ),
        (
            Counts(requests=9_000, hits=4_500, stale=5_580, lifetimes=900),
            False,
            Verdict.BROKEN,
            "breaks a guard: guard stale",
        ),
        (
            Counts(requests=200, hits=100, stale=20, lifetimes=100),
            True,
            Verdict.WAITING,
            "guard hits at least 0.4: not judged",
        ),
    ):
        judgement = judged(running, own, own, cdn=cdn)
        assert judgement.verdict is verdict
        with pytest.raises(ConfigurationError, match=said):
            promotable(begun, judgement)
    kept = Counts(requests=200, hits=100, stale=20, lifetimes=100)
    assert promotable(begun, judged(running, kept, kept, cdn=False)) == LONG


def test_a_possible_promotion_is_said_in_one_sentence() -> None:
    published = PublishedParameters(MemoryEventLayer(clock=lambda: NOW_MS), scope="d")
    with pytest.raises(ConfigurationError, match="there is no canary"):
        promotable(published.history()[-1], None)
    running = canary()
    begun = published.begin_canary(running, base=0, by="ann", now_ms=NOW_MS)
    rest = Counts(requests=9_000, hits=4_500, lifetimes=900)
    for own, said in (
        (
            Counts(requests=412, hits=206, lifetimes=20),
            "412 of 2000 requests were seen, and too little of invalidations 20",
        ),
        (Counts(requests=9_000, hits=0, lifetimes=900), "is worse than predicted: hits"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            promotable(begun, judged(running, own, rest, cdn=False))
    enough = judged(running, Counts(requests=2_000, hits=1_000, lifetimes=100), rest, cdn=False)
    assert promotable(begun, enough) == LONG


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"own": None},
        {"own": {"requests": 1}},
        {"own": Counts().plain() | {"requests": math.inf}},
        {"own": Counts().plain() | {"requests": 10**400}},
        {"rest": Counts(requests=1, hits=2).plain()},
        {"rest": Counts(lifetimes=1, invalidations=2).plain()},
    ],
)
def test_reports_that_cannot_be_do_not_count(change: dict[str, object]) -> None:
    counts = ProcessCounts(own=Counts(requests=3, hits=1), rest=Counts(), cdn=True)
    assert process_counts_of(json.loads(json.dumps(counts.plain()))) == counts
    assert process_counts_of(counts.plain() | change) is None
