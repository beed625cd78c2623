"""Requests whose answers forbid storage: their handlers run untracked, and no answer of an untracked run is stored."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import Request, Response

from quaestor.middleware.asked_entries import AskedEntries
from quaestor.middleware.never_stored import NeverStored
from tests.inputs.verified_site import VerifiedSite, verified_site
from tests.support import eventually

pytestmark = pytest.mark.anyio


class Page:
    """A page that chooses its record by a field of the request, and says by itself whether it may be stored.

    noticed: whether the latest run was shown a scope that notices what it is asked for.
    """

    def __init__(self, site: VerifiedSite) -> None:
        self.site = site
        self.says = "no-cache"
        self.noticed = True

        @site.app.get("/chosen")
        async def chosen(request: Request, response: Response) -> Any:
            self.noticed = isinstance(request.scope, AskedEntries)
            if self.says:
                response.headers["cache-control"] = self.says
            org = int(request.headers.get("x-org-id", "0"))
            return {"record": await site.seen.records.find_one({"_id": org})}

    async def get(self, org: int, **headers: str) -> str:
        """Cache-Status of an answer that is the right one for its request."""
        response = await self.site.http.get("/chosen", headers={"x-org-id": str(org)} | headers)
        if response.status_code == 200:
            assert response.json()["record"]["_id"] == org
        return response.headers["cache-status"]

    async def until(self, what: str) -> None:
        async def came() -> bool:
            return what in await self.get(1)

        await eventually(came)


@pytest.mark.usefixtures("patient_redis")
@pytest.mark.parametrize("says", ["no-cache", "no-store", "private"])
async def test_answers_with_unnoticed_inputs_are_not_stored(
    mongo_url: str, prefix: str, settings: dict[str, Any], says: str
) -> None:
    """Once the answers may be stored, the first is not; what decides about the following ones is in their key as ever."""
    async with verified_site(mongo_url, prefix, verification=False, ttl_min_ms=600_000, **settings) as site:
        page = Page(site)
        page.says = says
        await page.until(f"detail={says}")
        assert f"detail={says}" in await page.get(2)
        assert not page.noticed
        page.says = ""
        assert "detail=unnoticed" in await page.get(2)
        assert not page.noticed
        await page.until("; hit")
        for org in (2, 3):
            assert "; hit" not in await page.get(org)
            assert page.noticed
        assert "; hit" in await page.get(1)


async def test_conditions_are_evaluated_as_ever(mongo_url: str, prefix: str) -> None:
    """Whether a handler would have answered 304 is known by what it asks for, so that is noticed."""
    async with verified_site(mongo_url, prefix, verification=False) as site:
        page = Page(site)
        await page.until("detail=no-cache")
        await page.get(1)
        assert not page.noticed
        await page.get(1, **{"if-none-match": '"x"'})
        assert page.noticed


def test_so_many_are_remembered_at_most() -> None:
    never = NeverStored(limit=2)
    for key in ("a", "b", "b", "c"):
        never.learn(key)
    never.forget("unknown")
    assert [key in never for key in ("a", "b", "c")] == [False, True, True]
    never.forget("b")
    assert "b" not in never
