"""Diagnosis of a CDN's limits and bounds for an application: ok, warn or block, each with its remedy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from quaestor import Quaestor, Settings
from quaestor.admin import status_text
from quaestor.cdn_adapters import Capabilities, Delivery, FanOut, MemoryCdn, Owner, Rate, TagField, Tiers
from quaestor.cdn_adapters.capabilities import TAG
from quaestor.cdn_adapters.diagnosis import findings
from quaestor.cdn_ports import Facts, Level
from quaestor.doctor.cdn_check import diagnosed, facts_of

pytestmark = pytest.mark.anyio

RATE = Rate(bucket="api", owner=Owner.ACCOUNT, per_s=5, burst=25)
PLACE = Capabilities(kinds=(TAG,), batch={TAG: 10}, rates=(RATE,), tag_field=TagField(name="cache-tag"))
FACTS = facts_of(Settings())


def found(capabilities: Capabilities = PLACE, facts: Facts = FACTS, *, busiest_per_s: float = 0, dead: int = 0) -> str:
    diagnoses = findings(capabilities, facts, busiest_per_s=busiest_per_s, dead=dead)
    return "; ".join(f"{diagnosis.level} {diagnosis.sentence}" for diagnosis in diagnoses)


def test_a_place_that_suffices_needs_no_word() -> None:
    assert found() == ""
    assert found(Capabilities(kinds=(TAG,)), busiest_per_s=1_000_000) == "", "it has no rates"


@pytest.mark.parametrize(
    ("busiest_per_s", "tiered", "level"),
    [(10, False, ""), (18, False, "warn"), (26, False, "block"), (15, True, "warn"), (20, True, "block")],
)
def test_capacity_is_compared_with_the_busiest_minute(busiest_per_s: float, tiered: bool, level: str) -> None:
    """Fifty a second: each purge is made twice, with tiers three times."""
    assert found(replace(PLACE, tiered=tiered), busiest_per_s=busiest_per_s).partition(" ")[0] == level


def test_a_bound_that_is_no_shorter_than_the_lifetimes_is_worth_a_warning() -> None:
    slow = replace(PLACE, effective_within_ms=600_000)
    assert found(slow) == ""
    assert found(slow, replace(FACTS, lives_ms=600_000)).startswith("warn a purge is effective within 600 s")


def test_a_field_that_does_not_take_the_tags_that_purges_go_by_blocks() -> None:
    short = replace(PLACE, tag_field=TagField(name="cache-tag", max_tag_bytes=16))
    assert "not even an answer's own tag fits" in found(short)
    long = facts_of(Settings(deployment="d" * 60))
    tight = replace(PLACE, tag_field=TagField(name="cache-tag", max_tag_bytes=64))
    assert found(tight) == ""
    assert found(tight, long).startswith("block the deployment's tag (69 bytes) does not fit")


def test_dead_letters_are_named() -> None:
    assert found(dead=3).startswith("warn 3 purges were refused for good")


class Slow(MemoryCdn):
    """A CDN in memory that says it is slow."""

    capabilities = replace(MemoryCdn.capabilities, effective_within_ms=7_200_000)


async def test_the_doctor_names_each_cdn_of_an_application() -> None:
    """The doctor names sufficient CDNs too; several places, and tiers, are one line."""
    quaestor = Quaestor(grid=False)
    quaestor.add_cdn(Delivery(MemoryCdn()))
    quaestor.add_cdn(FanOut("both", [Delivery(Slow()), Delivery(Slow())]))
    quaestor.add_cdn(Tiers("tiers", shield=FanOut("s", [Delivery(Slow())]), edge=FanOut("e", [Delivery(Slow())])))
    await quaestor.start()
    try:
        diagnoses = await diagnosed(quaestor)
    finally:
        await quaestor.stop()
    assert [(diagnosis.level, diagnosis.subject) for diagnosis in diagnoses] == [
        ("ok", "cdn memory"), ("warn", "cdn both"), ("warn", "cdn tiers")
    ]  # fmt: skip


def test_levels_of_findings_sort_by_severity() -> None:
    assert list(Level) == ["ok", "warn", "block"]


def test_the_status_for_people_says_how_each_place_takes_purges() -> None:
    place = {"place": "fastly 7", "state": "dark", "open": 3, "dead": 1, "stale_s": 90.0}
    status = {
        "serving": True, "lagging": [], "mode": "embedded", "deployment": "d", "grid": None, "registered_urls": 0,
        "counts": {}, "cdns": [place, place | {"state": "ok", "stale_s": 0.0}],
    }  # fmt: skip
    text = status_text.text(status)
    assert "fastly 7: dark, 3 purges open, 1 dead; what they are about may be served for 90 s" in text
    assert "nothing stale is known to be there" in text
