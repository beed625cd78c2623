"""Records that mongod stores and no driver decodes: the matching of their partition goes on."""

from __future__ import annotations

from typing import Any

import bson
import pytest
from bson.raw_bson import RawBSONDocument

from tests.inputs.verified_site import is_hit, verified_site
from tests.support import eventually

pytestmark = pytest.mark.anyio


def not_utf8(document: dict[str, Any]) -> Any:
    """The document with a byte in the place of `~` that no text of UTF-8 holds."""
    return RawBSONDocument(bson.encode(document).replace(b"~", b"\xff"))


@pytest.mark.parametrize("images", [True, False])
async def test_a_record_that_the_driver_cannot_decode_does_not_stop_the_matching(
    mongo_url: str, prefix: str, images: bool
) -> None:
    """Its collection counts as changed once. Later writes are seen, and answers are cached again."""
    async with verified_site(mongo_url, prefix, probation_answers=0, ttl_min_ms=600_000) as site:
        site.other[prefix].command({"collMod": "records", "changeStreamPreAndPostImages": {"enabled": images}})
        await eventually(lambda: is_hit(site))
        site.records.insert_one(not_utf8({"_id": 100, "group": 7, "text": "~"}))
        runs = site.runs

        async def ran_again() -> bool:
            await site.get()
            return site.runs > runs

        await eventually(ran_again)
        await eventually(lambda: is_hit(site))
        site.records.update_one({"_id": 1}, {"$set": {"n": 5}})

        async def shows_the_update() -> bool:
            answer, _ = await site.get()
            return bool(answer["records"][0]["n"] == 5)

        await eventually(shows_the_update)
        await eventually(lambda: is_hit(site))
        assert not [failure for failure in site.failures if failure.part == "grid"]
