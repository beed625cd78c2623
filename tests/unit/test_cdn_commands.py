"""`quaestor cdn`: what lies in the outbox, and what the CDN refused, from the command line."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from quaestor.cli import main
from quaestor.redis.clients import shared_client
from quaestor.store.outbox_redis import RedisOutbox

QUEUE = "api zone-1"


def call(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main.main(list(arguments))
    return int(ended.value.code or 0)


def test_open_and_dead_purges_are_listed_replayed_and_dropped(
    redis_url: str, prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status 1 of `stats`: there are dead letters."""

    async def fill() -> None:
        client = shared_client(redis_url)
        outbox = RedisOutbox(client, deployment=prefix)
        now_ms = time.time_ns() // 1_000_000
        for tag in ("a", "b"):
            await outbox.put(QUEUE, [f"0tag {tag}"], until_ms=now_ms + 600_000, now_ms=now_ms)
        [first] = await outbox.take(QUEUE, token="t", count=1, lease_ms=60_000, now_ms=now_ms)
        await outbox.bury(QUEUE, [first], reason="no such tag", now_ms=now_ms)
        await client.aclose()

    asyncio.run(fill())
    where = ["--redis-url", redis_url, "--deployment", prefix]
    assert call("cdn", "queue", "stats", *where, "--json") == 1
    output = json.loads(capsys.readouterr().out)
    assert (output["queue"], output["waiting"], output["taken"], output["dead"]) == (QUEUE, 1, 0, 1)
    assert call("cdn", "queue", "ls", *where) == 0
    assert "tag b" in capsys.readouterr().out
    assert call("cdn", "queue", "ls", QUEUE, "--dead", *where) == 0
    assert "reason=no such tag" in capsys.readouterr().out
    assert call("cdn", "queue", "replay", *where) == 0
    assert "1 purges wait again" in capsys.readouterr().out
    assert call("cdn", "queue", "stats", *where) == 0
    assert "2 waiting" in capsys.readouterr().out
    assert call("cdn", "queue", "drop", *where) == 0
    assert "0 dead letters" in capsys.readouterr().out


def test_an_unknown_queue_and_a_missing_redis_are_said_in_one_sentence(
    redis_url: str, prefix: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call("cdn", "queue", "stats", "nobody", "--redis-url", redis_url, "--deployment", prefix) == 2
    assert "there is no queue 'nobody'" in capsys.readouterr().err
    monkeypatch.delenv("REDIS_URL", raising=False)
    assert call("cdn", "queue", "stats") == 2
    assert "no Redis is named" in capsys.readouterr().err


def test_a_check_of_what_is_no_app_is_said_in_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("cdn", "check", "varnish", "--app", "nowhere:app") == 2
    assert "nowhere" in capsys.readouterr().err
