"""Explicit entries against the rules of RFC 9111: random origins, clocks, request directives and unsafe requests.

Each answer is the origin's present one, or an earlier one. An earlier one is fresh by its own fields, or stale where the
origin allows that. No answer was outdated by an unsafe request since it was asked for. Catches: a lifetime that is
counted from the wrong moment, a check that a path forgets, an entry that outlives the request that outdated it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import httpx
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from tests.end_to_end.site import Site

PATHS = ("/a", "/b")
DIRECTIVES = ("", "no-cache", "max-age=3", "min-fresh=3", "max-stale=4", "only-if-cached")


@dataclass
class Said:
    """One version of a page: what the origin says of it."""

    max_age_s: int | None
    age_s: int
    revalidate_s: int
    error_s: int
    must: bool
    etag: bool

    def fields(self, version: int) -> dict[str, str]:
        pieces = [] if self.max_age_s is None else [f"max-age={self.max_age_s}"]
        pieces += [f"stale-while-revalidate={self.revalidate_s}"] if self.revalidate_s else []
        pieces += [f"stale-if-error={self.error_s}"] if self.error_s else []
        pieces += ["must-revalidate"] if self.must else []
        fields = {"cache-control": ", ".join(pieces)} if pieces else {}
        fields |= {"age": str(self.age_s)} if self.age_s else {}
        return fields | ({"etag": f'"{version}"'} if self.etag else {})


SAID = st.builds(
    Said,
    max_age_s=st.sampled_from([None, 0, 2, 10]),
    age_s=st.sampled_from([0, 1, 4]),
    revalidate_s=st.sampled_from([0, 3]),
    error_s=st.sampled_from([0, 5]),
    must=st.booleans(),
    etag=st.booleans(),
)


class Explicit(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.said: dict[str, list[Said]] = {path: [Said(10, 0, 0, 0, False, True)] for path in PATHS}
        self.confirmed_ms: dict[tuple[str, int], list[int]] = {}
        self.outdated_ms = dict.fromkeys(PATHS, -1)
        self.failing = False

        async def origin(request: Request) -> Response:
            path = request.url.path
            if request.method == "POST":
                return PlainTextResponse("done")
            if self.failing:
                return PlainTextResponse("error", 503)
            version = len(self.said[path]) - 1
            self.confirmed_ms.setdefault((path, version), []).append(self.clock.now_ms)
            fields = self.said[path][version].fields(version)
            if self.said[path][version].etag and request.headers.get("if-none-match") == f'"{version}"':
                return Response(status_code=304, headers=fields)
            return PlainTextResponse(str(version), headers=fields)

        self.site = Site(origin, explicit=True)
        self.clock = self.site.engine.clock

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.loop.run_until_complete(self.site.client.aclose())
            self.loop.close()

    async def fetch(self, path: str, directive: str) -> httpx.Response:
        answer = await self.site.get(path, **({"cache_control": directive} if directive else {}))
        for _ in range(20):  # refreshes in the background
            await asyncio.sleep(0)
        return answer

    @rule(seconds=st.integers(1, 6))
    def time_passes(self, seconds: int) -> None:
        self.clock.now_ms += seconds * 1000

    @rule(path=st.sampled_from(PATHS), said=SAID)
    def the_page_changes(self, path: str, said: Said) -> None:
        self.said[path].append(said)

    @rule(failing=st.booleans())
    def the_origin_fails_or_recovers(self, failing: bool) -> None:
        self.failing = failing

    @rule(path=st.sampled_from(PATHS))
    def somebody_writes(self, path: str) -> None:
        self.loop.run_until_complete(self.site.client.post(path))
        self.outdated_ms[path] = self.clock.now_ms
        self.clock.now_ms += 1

    @rule(path=st.sampled_from(PATHS), directive=st.sampled_from(DIRECTIVES))
    def somebody_reads(self, path: str, directive: str) -> None:
        now_ms, failing = self.clock.now_ms, self.failing
        newest = len(self.said[path]) - 1
        answer = self.loop.run_until_complete(self.fetch(path, directive))
        if answer.status_code in (503, 504):
            assert failing or directive == "only-if-cached"
            return
        assert answer.status_code == 200
        version = int(answer.text)
        if version == newest and not failing:
            return
        assert any(
            self.allowed(path, version, directive, at_ms, now_ms, failing) for at_ms in self.asked(path, version)
        )

    def asked(self, path: str, version: int) -> list[int]:
        return self.confirmed_ms.get((path, version), [])

    def allowed(self, path: str, version: int, directive: str, at_ms: int, now_ms: int, failing: bool) -> bool:
        """Whether what the origin said then may be used now."""
        if at_ms <= self.outdated_ms[path]:
            return False
        said = self.said[path][version]
        lifetime_s = said.max_age_s or 0
        age_s = said.age_s + (now_ms - at_ms) / 1000
        late_s = age_s - lifetime_s
        if failing and late_s < said.error_s and not said.must:
            return True
        if directive == "no-cache" or (directive == "max-age=3" and age_s > 3):
            return False
        if directive == "min-fresh=3":
            return late_s + 3 < 0
        if late_s < 0:
            return True
        if said.must:
            return False
        return late_s < said.revalidate_s or (directive == "max-stale=4" and late_s < 4)


TestExplicit = Explicit.TestCase
TestExplicit.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
