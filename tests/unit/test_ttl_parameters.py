"""Parameters of the lifetimes: checked, published as a log, taken up without losing what was learned."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from quaestor.errors import ConfigurationError, EventLayerResetError
from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.ports import StreamEntry
from quaestor.ttl.chosen import ChosenEstimators
from quaestor.ttl.parameters import TtlParameters, Tuning, decoded
from quaestor.ttl.published import NOTHING, PublishedParameters

NOW_MS = 1_700_000_000_000
SHORT = TtlParameters(default=Tuning(quantile=0.2))
LONG = TtlParameters(default=Tuning(quantile=0.9), kinds={"db.news": Tuning(estimator="static", static_ms=5_000)})


def test_parameters_are_the_same_after_they_were_written_down() -> None:
    assert decoded(LONG.encoded()) == LONG
    assert decoded("{}") == TtlParameters()
    assert decoded('{"default": {"quantile": 0.3}, "kinds": {"db.a": {"alpha": 0.5}}}').of("db.a") == Tuning(
        quantile=0.3, alpha=0.5
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no json", "no JSON"),
        ("[]", "must be an object"),
        ('{"defaults": {}}', "must be an object with"),
        ('{"kinds": []}', "'kinds' must be"),
        ('{"default": 7}', "'default' must be an object"),
        ('{"default": {"quantil": 0.5}}', "unknown parameters quantil"),
        ('{"default": {"quantile": 1.5}}', "quantile must lie in"),
        ('{"default": {"quantile": true}}', "quantile must lie in"),
        ('{"default": {"quantile": NaN}}', "quantile must lie in"),
        ('{"default": {"ttl_min_ms": 1.5}}', "whole number"),
        ('{"default": {"ttl_min_ms": 5000, "ttl_max_ms": 1000}}', "is below"),
        ('{"kinds": {"db.a": {"estimator": "magic"}}}', "'db.a': estimator 'magic'"),
        ('{"default": {"daily": 1}}', "daily must be"),
        (json.dumps({"kinds": {str(i): {} for i in range(65)}}), "at most 64"),
    ],
)
def test_numbers_outside_their_bounds_are_refused_by_name(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        decoded(text)


def test_each_collection_has_the_estimator_that_was_chosen_for_it() -> None:
    estimator = ChosenEstimators(LONG, false_positive_rate=lambda keys: 0.0)
    assert estimator.estimate_ms(["q"], write_rate_hz=0.1, now_ms=NOW_MS, kind="db.news") == 5_000
    assert estimator.estimate_ms(["q"], write_rate_hz=0.1, now_ms=NOW_MS, kind="db.other") == 23_025


def test_learned_rates_stay_when_only_numbers_change() -> None:
    """Another quantile, the same mean; another estimator begins anew, and the one that is no longer named is gone."""
    estimator = ChosenEstimators(SHORT, false_positive_rate=lambda keys: 0.0)
    estimator.observe_read(["q"], now_ms=NOW_MS)
    estimator.observe_invalidation("q", now_ms=NOW_MS + 100_000)
    estimator.take_up(LONG)
    assert estimator.estimate_ms(["q"], write_rate_hz=0, now_ms=NOW_MS + 100_000) == 230_258
    estimator.take_up(TtlParameters(default=Tuning(estimator="static", static_ms=7_000)))
    assert estimator.estimate_ms(["q"], write_rate_hz=0, now_ms=NOW_MS + 100_000) == 7_000


def test_the_last_publication_counts_and_can_be_rolled_back() -> None:
    layer = MemoryEventLayer(clock=lambda: NOW_MS)
    operator, app = (PublishedParameters(layer, scope="d") for _ in range(2))
    assert app.history() == [NOTHING]
    operator.publish(SHORT, base=0, by="ann", now_ms=NOW_MS)
    assert app.history()[-1].parameters == SHORT
    operator.publish(LONG, base=1, by="ann", now_ms=NOW_MS + 1)
    assert operator.rollback(by="bob", now_ms=NOW_MS + 2).parameters == SHORT
    assert [(publication.number, publication.by, publication.parameters) for publication in app.history()[1:]] == [
        (1, "ann", SHORT), (2, "ann", LONG), (3, "bob", SHORT),
    ]  # fmt: skip
    assert PublishedParameters(layer, scope="another").history() == [NOTHING]


def test_the_first_publication_is_rolled_back_to_the_settings_and_nothing_cannot_be() -> None:
    published = PublishedParameters(MemoryEventLayer(clock=lambda: NOW_MS), scope="d")
    with pytest.raises(ConfigurationError, match="nothing was applied"):
        published.rollback(by="ann", now_ms=NOW_MS)
    published.publish(SHORT, base=0, by="ann", now_ms=NOW_MS)
    assert published.rollback(by="ann", now_ms=NOW_MS + 1).parameters is None


class Overtaken(MemoryEventLayer):
    """An event layer in which another operator's entry comes first, between the look and the append."""

    first: bytes = b""

    def append(self, stream: str, payloads: list[bytes]) -> None:  # type: ignore[override]
        if self.first:
            super().append(stream, [self.first])
            self.first = b""
        super().append(stream, payloads)


def test_the_slower_of_two_operators_is_refused_and_overwrites_nothing() -> None:
    layer = Overtaken(clock=lambda: NOW_MS)
    layer.first = json.dumps(
        {"base": 0, "at_ms": NOW_MS, "by": "bob", "parameters": json.loads(LONG.encoded())}
    ).encode()
    ann = PublishedParameters(layer, scope="d")
    with pytest.raises(ConfigurationError, match="bob has applied other parameters meanwhile"):
        ann.publish(SHORT, base=0, by="ann", now_ms=NOW_MS)
    with pytest.raises(ConfigurationError, match="meanwhile"):
        ann.publish(SHORT, base=0, by="ann", now_ms=NOW_MS)
    assert [publication.parameters for publication in PublishedParameters(layer, scope="d").history()] == [None, LONG]
    assert ann.publish(SHORT, base=1, by="ann", now_ms=NOW_MS).number == 2


@pytest.mark.parametrize(
    "strange",
    [b"", b"\xff", b"[]", b"{}", b'{"base":0}', b'{"base":0,"at_ms":1,"by":"x","parameters":{"default":{"alpha":9}}}'],
)
def test_unreadable_parameters_do_not_count(strange: bytes) -> None:
    layer = MemoryEventLayer(clock=lambda: NOW_MS)
    layer.append("quaestor:{d:ttl}:parameters", [strange])
    published = PublishedParameters(layer, scope="d")
    assert published.history() == [NOTHING]
    assert published.publish(SHORT, base=0, by="ann", now_ms=NOW_MS).number == 1


class Restarted(MemoryEventLayer):
    """An event layer that came back without its data: offsets from before are refused."""

    empty = False

    def read(self, offsets: Mapping[str, str], *, count: int, block_ms: int) -> list[StreamEntry]:
        if not self.empty:
            return super().read(offsets, count=count, block_ms=block_ms)
        if set(offsets.values()) != {"0"}:
            raise EventLayerResetError("the data are gone")
        return []


def test_when_the_event_layer_loses_its_data_the_settings_count_again() -> None:
    layer = Restarted(clock=lambda: NOW_MS)
    published = PublishedParameters(layer, scope="d")
    published.publish(SHORT, base=0, by="ann", now_ms=NOW_MS)
    layer.empty = True
    assert published.history() == [NOTHING]
    assert published.history() == [NOTHING]
