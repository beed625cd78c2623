"""The cache verifies itself: what a handler reads where nobody can see it is found by making its answers again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import Request

from quaestor import AdminApi, AdminToken
from tests.end_to_end.test_distributed import HEARTBEAT_MS, grid
from tests.inputs.unseen_sources import Making, a_counter, a_file, a_memo, a_worker, chance
from tests.inputs.verified_site import is_hit, is_stored, lifetime_ms, lives_long, verified_site
from tests.support import eventually

pytestmark = pytest.mark.anyio

TOKEN = "0123456789abcdefghijklmnopqrstuvwxyz0123"


@pytest.mark.usefixtures("patient_redis")
@pytest.mark.parametrize(
    ("making", "differs"),
    [
        (a_counter, "body"),
        (a_file, "body"),
        (chance, "body"),
        (a_memo, "queries"),
        (a_worker, "body"),
    ],
)
async def test_an_unseen_input_is_found_and_the_route_is_cached_no_longer(
    mongo_url: str, prefix: str, settings: dict[str, Any], tmp_path: Path, making: Making, differs: str
) -> None:
    """Within the first answers of the route; from then on each request has its own answer, and everybody can see why."""
    async with verified_site(mongo_url, prefix, **settings) as site:
        site.source = making(site, tmp_path / "file")
        await eventually(site.found_out)
        runs = site.runs
        for _ in range(3):
            assert (await site.get())[1] == "Quaestor; fwd=bypass; detail=diverged"
        assert site.runs >= runs + 3  # a verification that had begun may run, too
        quarantines = site.quaestor.read_path.probation.quarantines
        assert [(quarantine.route.rpartition(".")[2], quarantine.differs) for quarantine in quarantines] == [
            ("page", (differs,))
        ]
        divergences = [failure for failure in site.failures if failure.name == "verification.diverged"]
        assert len(divergences) == 1
        assert divergences[0].fields["differs"] == [differs]
        assert "records" not in repr(divergences[0].fields)
        count = site.quaestor.telemetry.families.registry.get_sample_value
        assert count("quaestor_divergences_total") == 1
        assert site.verified("diverged") == 1


async def test_status_says_which_route_is_not_cached_and_why(mongo_url: str, prefix: str, tmp_path: Path) -> None:
    async with verified_site(mongo_url, prefix) as site:
        site.source = chance(site, tmp_path)
        await eventually(site.found_out)
        app = AdminApi(site.app, quaestor=site.quaestor, token=AdminToken(TOKEN))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://site") as client:
            answer = await client.get("/quaestor/admin/status", headers={"authorization": f"Bearer {TOKEN}"})
        status = answer.json()
        assert [quarantine["differs"] for quarantine in status["quarantined"]] == [["body"]]
        assert status["quarantined"][0]["route"].endswith("page")


@pytest.mark.usefixtures("patient_redis")
async def test_a_route_that_keeps_its_word_passes_and_its_answers_live_as_long_as_any(
    mongo_url: str, prefix: str, settings: dict[str, Any]
) -> None:
    """Until then they live for a moment only, and each hit names the reason."""
    async with verified_site(mongo_url, prefix, probation_answers=1, ttl_min_ms=600_000, **settings) as site:
        await eventually(lambda: is_stored(site))
        assert lifetime_ms(site) <= 600

        hits: set[str] = set()

        async def passed() -> bool:
            status = (await site.get())[1]
            if "; hit" in status and not site.passed:
                hits.add(status)
            return site.passed

        await eventually(passed)
        assert hits == {"Quaestor; hit; ttl=0; detail=probation"}
        await eventually(lambda: lives_long(site))
        status = (await site.get())[1]
        assert status.startswith("Quaestor; hit; ttl=")
        assert "detail" not in status
        assert site.verified("same") >= 2
        assert site.quaestor.read_path.probation.quarantines == []


@pytest.mark.usefixtures("patient_redis")
async def test_a_later_difference_is_found_by_verifying_hits(
    mongo_url: str, prefix: str, settings: dict[str, Any]
) -> None:
    """The route has passed; one of its entries is asked for often, and something unseen changes."""
    often = {"probation_answers": 0, "verify_share": 1.0, "verify_per_second": 10.0, "ttl_min_ms": 600_000}
    async with verified_site(mongo_url, prefix, **often, **settings) as site:
        said = ["before"]

        async def source(_: Request) -> str:
            return said[0]

        site.source = source
        await eventually(lambda: is_hit(site))
        said[0] = "after"
        await eventually(site.found_out)
        assert (await site.get())[0]["besides"] == "after"


async def test_a_quarantine_ends_and_probation_begins_anew(mongo_url: str, prefix: str, tmp_path: Path) -> None:
    async with verified_site(mongo_url, prefix, quarantine_ms=300) as site:
        site.source = chance(site, tmp_path)
        await eventually(site.found_out)
        await eventually(lambda: not site.quaestor.read_path.probation.quarantines)

        async def source(_: Request) -> str:
            return "the same"

        site.source = source
        await eventually(lambda: is_hit(site))


async def test_a_quarantine_ends_early_once_runs_agree_but_only_once(mongo_url: str, prefix: str) -> None:
    """Something unseen changed one time. Nobody is served a stored answer before enough runs were the same."""
    async with verified_site(mongo_url, prefix, quarantine_ms=72_000) as site:
        said = ["before"]

        async def source(_: Request) -> str:
            return said[0]

        site.source = source
        probation = site.quaestor.read_path.probation

        async def found_out() -> bool:
            said[0] += "."
            return await site.found_out()

        await eventually(found_out)
        runs = site.runs
        await eventually(lambda: not probation.quarantines)
        assert site.runs >= runs + 6
        await eventually(lambda: is_hit(site))
        await eventually(found_out)
        (again,) = probation.quarantines
        (route,) = probation._quarantined
        assert again.reason == "diverged"
        assert not probation.may_shorten(route)


async def test_other_processes_forget_what_was_found_out_here(mongo_url: str, redis_url: str, prefix: str) -> None:
    """On the grid: an entry that one process has found wrong dies in the other, as of a write."""
    shared = {"redis_url": redis_url, "deployment": prefix, "heartbeat_ms": HEARTBEAT_MS, "ttl_min_ms": 600_000}
    with grid(mongo_url, redis_url, prefix):
        async with (
            verified_site(
                mongo_url, prefix, probation_answers=0, verify_share=1.0, verify_per_second=10.0, **shared
            ) as first,
            verified_site(mongo_url, f"{prefix}x", verification=False, **shared) as second,
        ):
            said = ["before"]

            async def source(_: Request) -> str:
                return said[0]

            first.source = second.source = source
            await eventually(lambda: is_hit(second, "/groups/2"))
            runs = second.runs
            await eventually(lambda: is_hit(first))
            await eventually(lambda: is_hit(second))
            assert second.runs == runs
            said[0] = "after"
            await eventually(first.found_out)

            async def heard() -> bool:
                return bool((await second.get())[0]["besides"] == "after")

            await eventually(heard)
