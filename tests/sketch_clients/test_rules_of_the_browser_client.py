"""The rules by which the browser client uses copies, on a scripted network and scripted clocks, in Node.js."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from benchmarks.setups.clients.node import CLIENT, NODE, run
from quaestor.caching import cached, cookie, header, per_role, per_user
from tests.end_to_end.site import Site

PROTECTIONS = {
    "copies that the sketch names": (
        "client.ts",
        [
            ("(shows > made || !flat!.names(name))", "true"),
        ],
    ),
    "a sketch older than the bound": ("client.ts", [("time.now() - bound(wanted),", "0,")]),
    "own writes": ("client.ts", [("wanted.readYourWrites ? known.written : 0", "0")]),
    "own writes of pages that are gone": ("client.ts", [("known.written = LATEST;", "")]),
    "the wall clock": ("server_time.ts", [("wall - wallThen, ", "")]),
    "the monotonic clock": ("server_time.ts", [(", monotonic - monotonicThen", "")]),
    "what an answer without a lifetime drops": ("copies.ts", [("if (kept.get(url)?.etag !== etag) drop(url);", "")]),
    "the number that the server repeats": ("sketch_loader.ts", [('if (!found.fresh) throw Error("an old one");', "")]),
    "the age of a sketch on a page's first load": (
        "sketch_loader.ts",
        [("known ? 0 : wall", "0"), ("Math.abs(wall - shown) < AMISS", "true")],
    ),
}
"""Protections from stale copies: the module, and its replacement to be without it."""


BUILT = CLIENT.parents[1] / "middleware" / "browser"


def play(
    client: Path, *, histories: int, only: str = ".", built: Path | None = None
) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"HISTORIES": str(histories)} | ({"CLIENT": str(built)} if built else {})
    return subprocess.run(
        [NODE, "--no-warnings", "--test-force-exit", f"--test-name-pattern={only}", client / "test" / "client.test.ts"],
        env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip


def test_each_rule_keeps_its_promise() -> None:
    """Each rule by itself, and Δ, own writes and monotonic reads in random histories with wrong clocks and old sketches."""
    played = play(CLIENT, histories=60)
    assert played.returncode == 0, played.stdout[-8000:]


def test_rules_of_the_page_module_as_it_is_served() -> None:
    """Minified, with short names in place of its own."""
    played = play(CLIENT, histories=20, built=BUILT / "client.js")
    assert played.returncode == 0, played.stdout[-8000:]


def test_rules_of_the_service_worker() -> None:
    """The worker's handled requests, its answers to pages, and its memory when the browser ends it."""
    program = CLIENT / "test" / "worker.test.ts"
    played = subprocess.run(
        [NODE, "--no-warnings", "--test-force-exit", program],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    assert played.returncode == 0, played.stdout[-8000:]


def test_a_page_receives_a_notice_of_stale_data() -> None:
    """The notice comes once, within Δ, and at once for own writes; `quaestor-client/stale`."""
    program = CLIENT / "test" / "stale.test.ts"
    played = subprocess.run(
        [NODE, "--no-warnings", "--test-force-exit", program],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    assert played.returncode == 0, played.stdout[-8000:]


def test_a_site_with_a_worker_of_its_own_keeps_it() -> None:
    """`register()` refuses to replace it and names the remedy; a worker that imports ours sets the rules and keeps the pages."""
    program = CLIENT / "test" / "own_worker.test.ts"
    played = subprocess.run(
        [NODE, "--no-warnings", "--test-force-exit", program],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    assert played.returncode == 0, played.stdout[-8000:]


def test_a_client_outside_of_a_page_lets_everything_pass_and_the_program_end() -> None:
    """In Node.js, where a listening channel would keep the program alive."""
    run("outside.mjs", [])


def fields_of_the_middleware() -> list[dict[str, object]]:
    """Return the middleware's fields on a private answer for each kind of `by`,
    and the request field that distinguishes users.
    """

    def user_of(scope: Mapping[str, Any]) -> str | None:
        return "ann"

    kinds = {
        "cookie()": (per_user(by=cookie("session")), "cookie"),
        "header()": (per_user(by=header("X-User-Token")), "x-user-token"),
        "a named field": (per_user(by=user_of, reads=["x-user"]), "x-user"),
        "two named fields": (per_role(by=user_of, reads=["x-role", "x-tenant"]), "x-tenant"),
        "no field is named": (per_user(by=user_of), "x-user-token"),
        "the scope": (per_user(by=user_of), ""),
    }

    async def asked() -> list[dict[str, object]]:
        said: list[dict[str, object]] = []
        for name, (scope, field) in kinds.items():
            for browser_ttl in (None, 300):
                site = Site(routes={"/me": cached(scope=scope, browser_ttl=browser_ttl)})
                headers = {"cookie": "session=ann"} if field == "cookie" else {field or "x-other": "ann"}
                answer = await site.get("/me", **headers)
                named = ("quaestor-ttl", "vary", "cache-control")
                kept = {name: answer.headers[name] for name in named if name in answer.headers}
                said.append({"name": f"{name}, browser_ttl={browser_ttl}", "headers": kept, "field": field})
        return said

    return anyio.run(asked)


@pytest.mark.parametrize("built", [None, BUILT / "client.js"], ids=["as written", "as served"])
def test_private_answers_stay_with_their_user(built: Path | None) -> None:
    """By the middleware's real fields, for a `by` of every kind, in random histories of one page."""
    rows = fields_of_the_middleware()
    assert {headers["cache-control"] for row in rows if isinstance(headers := row["headers"], dict)} == {
        "private, max-age=0, must-revalidate"
    }
    environment = os.environ | {"FIELDS": json.dumps(rows)} | ({"CLIENT": str(built)} if built else {})
    played = subprocess.run(
        [NODE, "--no-warnings", "--test-force-exit", CLIENT / "test" / "private.test.ts"],
        env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    assert played.returncode == 0, played.stdout[-8000:]


def test_the_scripts_that_the_middleware_serves_are_built_of_these_sources() -> None:
    """`make browser-client` builds them, and notes of what."""
    sources = hashlib.sha256()
    for source in sorted((CLIENT / "src").iterdir()):
        sources.update(source.read_bytes())
    assert (BUILT / "sources.sha256").read_text().strip() == sources.hexdigest(), "run `make browser-client`"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_rules_in_many_histories() -> None:
    played = play(CLIENT, histories=2000, only="random histories")
    assert played.returncode == 0, played.stdout[-8000:]


@pytest.mark.slow
@pytest.mark.parametrize("protection", PROTECTIONS)
def test_without_a_protection_histories_break_a_promise(protection: str, tmp_path: Path) -> None:
    """The random histories would find that it is missing."""
    for part in ("src", "test"):
        shutil.copytree(CLIENT / part, tmp_path / part)
    shutil.copy(CLIENT / "package.json", tmp_path)
    name, replacements = PROTECTIONS[protection]
    module = tmp_path / "src" / name
    text = module.read_text()
    for old, new in replacements:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    module.write_text(text)
    played = play(tmp_path, histories=400, only="random histories")
    assert played.returncode != 0
    assert "ERR_ASSERTION" in played.stdout, played.stdout[-8000:]
