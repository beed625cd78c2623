"""The middleware serves the browser client, and puts the line that registers it into pages that can be changed safely."""

from __future__ import annotations

import gzip
import re
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse

from quaestor.errors import ConfigurationError
from quaestor.middleware import BrowserClient
from tests.end_to_end.site import Site, status_of
from tests.hand_driven import reads

pytestmark = pytest.mark.anyio

PAGE = (
    "<!-- a --><!DOCTYPE html>\n<html lang='en'><!-- b -->\n<head>\n"
    "<meta charset=utf-8><title>é</title></head><body></body></html>"
)
LINE = '<script type="module" src="/quaestor/register.js"></script>'


async def page(
    content: str | bytes = PAGE, *, query: str = "/", streamed: bool = False, **fields: str
) -> tuple[str, Response]:
    """Return the page that a browser receives when the application answers with these fields, and the answer."""
    headers = {name.replace("_", "-"): value for name, value in fields.items()}

    async def handler(request: Request) -> Response:
        if streamed:

            async def pieces() -> Any:
                yield content[:50]
                yield content[50:]

            return StreamingResponse(pieces(), media_type="text/html", headers=headers)
        return (
            HTMLResponse(content, headers=headers)
            if "content-type" not in headers
            else Response(content, headers=headers)
        )

    site = Site(handler, browser_client=BrowserClient(inject=True))
    answer = await site.get(query)
    if "content_encoding" not in fields:
        assert int(answer.headers.get("content-length", len(answer.content))) == len(answer.content)
    return answer.text, answer


@pytest.mark.parametrize("name", ["worker.js", "client.js", "long_digest.js", "register.js"])
async def test_files_are_served_compressed_and_revalidated(name: str) -> None:
    site = Site(browser_client=BrowserClient())
    answer = await site.get(f"/quaestor/{name}", accept_encoding="gzip")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.headers["service-worker-allowed"] == "/"
    plain = await site.get(f"/quaestor/{name}", accept_encoding="identity")
    assert plain.content == answer.content
    assert plain.headers["etag"] != answer.headers["etag"]
    assert (
        await site.get(f"/quaestor/{name}", if_none_match=plain.headers["etag"], accept_encoding="identity")
    ).status_code == 304
    assert (await site.client.post(f"/quaestor/{name}")).status_code == 405
    assert site.runs == 0


async def test_nothing_is_served_unasked() -> None:
    site = Site()
    await site.get("/quaestor/worker.js")
    assert site.runs == 1


async def test_switched_off_a_worker_that_does_nothing_stands_at_the_same_place() -> None:
    """When the sketch is off, the same path serves a worker that does nothing, and no page registers one again."""
    site = Site(browser_client=BrowserClient(), sketch_off=True)
    worker = (await site.get("/quaestor/worker.js")).text
    assert "unregister" in worker
    assert '"fetch"' not in worker
    assert "serviceWorker" not in (await site.get("/quaestor/register.js")).text


async def test_the_line_stands_first_in_the_head_of_a_page() -> None:
    text, _ = await page()
    assert text == PAGE.replace("<head>", f"<head>{LINE}")


async def test_a_cached_page_has_the_line_and_is_changed_once() -> None:
    async def handler(request: Request) -> Response:
        reads()
        return HTMLResponse(PAGE)

    site = Site(
        handler,
        browser_client=BrowserClient(inject=True, handles=["/a b".replace(" ", "-"), "/api/"], leaves=["/api/raw"]),
    )
    first, second = await site.get(), await site.get()
    assert "hit" in status_of(second)
    assert first.text == second.text
    assert (
        first.text.count('src="/quaestor/register.js?handles=%2Fa-b&amp;handles=%2Fapi%2F&amp;not=%2Fapi%2Fraw"') == 1
    )
    head = await site.client.head("/other")
    assert "content-length" not in head.headers


@pytest.mark.parametrize(
    "fields",
    [
        {"content_type": "application/xhtml+xml"},
        {"content_type": "text/plain"},
        {"cache_control": "no-transform"},
        {"repr_digest": "sha-256=:x:"},
        {"content_security_policy": "default-src 'none'"},
        {"content_security_policy": "script-src 'nonce-abc' 'strict-dynamic', script-src 'self' 'strict-dynamic'"},
        {"content_security_policy": "script-src https://cdn.test"},
        {"content_security_policy": "script-src 'self'; worker-src 'none'"},
        {"content_security_policy": "default-src *; script-src 'sha256-x'"},
    ],
)
async def test_pages_that_cannot_be_changed_safely_are_not_changed(fields: dict[str, str]) -> None:
    assert (await page(**fields))[0] == PAGE


@pytest.mark.parametrize(
    ("policy", "nonce"),
    [
        ("default-src 'self'", ""),
        ("img-src 'none'", ""),
        ("script-src 'nonce-aBc+/=' 'strict-dynamic'", "aBc+/="),
        ("script-src 'self', script-src 'nonce-x'", "x"),
        ("SCRIPT-SRC 'SELF'; script-src 'none'", ""),
    ],
)
async def test_the_line_carries_the_nonce_that_the_policy_wants(policy: str, nonce: str) -> None:
    text, _ = await page(content_security_policy=policy)
    attribute = f' nonce="{nonce}"' if nonce else ""
    assert LINE.replace("></script>", f"{attribute}></script>") in text


@pytest.mark.parametrize(
    "content",
    [
        "no page at all",
        "<html><head></head></html>",
        "<!doctype html><body><script>'<head>'</script>",
        PAGE.replace("<meta", "<meta http-equiv='Content-Security-Policy' content='x'><meta"),
        "<!doctype html>" + "<!-- -->" * 5_000 + "<p>",
        "<!doctype html>" + "<!--" * 50_000,
    ],
)
async def test_a_body_that_does_not_begin_as_a_page_is_not_changed(content: str) -> None:
    assert (await page(content))[0] == content


async def test_compressed_and_streamed_bodies_are_not_changed() -> None:
    packed = gzip.compress(PAGE.encode())
    assert (await page(packed, content_encoding="gzip"))[0] == PAGE
    assert (await page(PAGE, streamed=True))[0] == PAGE


@pytest.mark.parametrize(
    "wrong", [{"path": "quaestor"}, {"handles": "/api"}, {"handles": ["api"]}, {"leaves": ["/a?b"]}]
)
def test_paths_that_are_none_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(repr(next(iter(wrong.values()))).strip("[]"))):
        BrowserClient(**wrong)
