"""Messages for the first mistakes of a user: each names the value and the remedy, and is not repeated all the time."""

from __future__ import annotations

import inspect
import logging
import pydoc
import re
import time
from contextlib import suppress
from importlib import metadata
from typing import Any

import httpx
import pytest
import structlog
import uvicorn
from starlette.applications import Starlette
from typer.testing import CliRunner

from quaestor import Quaestor, cached
from quaestor.cli.main import app as command_line
from quaestor.doctor.hosted_app import started
from quaestor.errors import ConfigurationError, DatabaseError
from quaestor.explain.text_query import TextQuery, explain_text
from quaestor.invalidation.registry.lag_monitor import LagMonitor
from quaestor.middleware import QuaestorMiddleware
from quaestor.observability.telemetry import Telemetry

NOBODY = "mongodb://127.0.0.1:1/"


def test_an_address_in_the_place_of_settings_is_refused_without_printing_it() -> None:
    with pytest.raises(ConfigurationError, match=r"not a str: write Quaestor\(mongo_url=\.\.\.\)") as refused:
        Quaestor("mongodb://ann:secret@localhost/")  # type: ignore[arg-type]
    assert "secret" not in str(refused.value)


@pytest.mark.anyio
async def test_variables_that_are_not_read_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUAESTOR_TTL_MAX_MS", "5000")
    for quaestor, ignored in ((Quaestor(grid=False), True), (Quaestor.from_env(grid=False), False)):
        with structlog.testing.capture_logs() as logs:
            await quaestor.start()
            await quaestor.stop()
        said = [log["error"] for log in logs if log["event"] == "quaestor.environment_ignored"]
        assert bool(said) is ignored
        assert all("QUAESTOR_TTL_MAX_MS" in text and "Quaestor.from_env()" in text for text in said)


@pytest.mark.anyio
async def test_a_redis_that_only_the_environment_names_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """An address that the program passes, or refuses with None, is its own matter. MONGO_URL is none of ours: the app's clients
    are watched.
    """
    monkeypatch.setenv("REDIS_URL", "redis://127.0.0.1:1")
    monkeypatch.setenv("MONGO_URL", NOBODY)
    silent = Quaestor(grid=False)
    assert silent.ignored_variables == ("REDIS_URL",)
    with structlog.testing.capture_logs() as logs:
        await silent.start()
        await silent.stop()
    (said,) = [log["error"] for log in logs if log["event"] == "quaestor.environment_ignored"]
    assert said == (
        "REDIS_URL: Quaestor() reads no environment variables; write Quaestor.from_env(); to stay without this Redis, pass "
        "redis_url=None"
    )
    for redis_url in ("redis://127.0.0.1:1", "redis://127.0.0.1:2", None):
        assert Quaestor(redis_url=redis_url).ignored_variables == ()
    assert Quaestor.from_env().ignored_variables == ()
    monkeypatch.setenv("REDIS_URL", "")
    assert Quaestor().ignored_variables == ()


def test_a_failure_that_goes_on_is_logged_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is counted. A failure of another kind, and one after a pause, are logged at once."""
    now_s = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    telemetry = Telemetry()
    with structlog.testing.capture_logs() as logs:
        for step in range(244):
            now_s = step * 0.25
            telemetry.failure("event-layer", "registry.read_failed", f"no answer from 127.0.0.1:1 after {step} ms")
        telemetry.failure("event-layer", "registry.read_failed", "another reason")
        now_s += 11
        telemetry.failure("event-layer", "registry.read_failed", "no answer from 127.0.0.1:1 after 7 ms")
    assert [log.get("repeated") for log in logs] == [None, 239, None, None]
    assert [log["error"] for log in logs[2:]] == ["another reason", "no answer from 127.0.0.1:1 after 7 ms"]
    assert b'quaestor_failures_total{part="event-layer"} 246.0' in telemetry.exposition()


def test_cells_that_never_reported_do_not_lag() -> None:
    """The message names the two causes: MongoDB is away, or no grid runs."""
    monitor = LagMonitor(Telemetry(), bound_ms=2_000, begun_ms=0)
    with structlog.testing.capture_logs() as logs:
        monitor.observe([0, 2_500], now_ms=2_500)
        monitor.observe([0, 2_500], now_ms=8_000)
    assert [(log["event"], log["columns"]) for log in logs] == [
        ("registry.column_unheard", [0]),
        ("registry.column_lags", [1]),
    ]


def test_explain_says_that_mongodb_cannot_be_reached() -> None:
    with pytest.raises(DatabaseError, match=r"MongoDB cannot be reached: 127\.0\.0\.1:1") as refused:
        explain_text(TextQuery(text='{"a": 1}', collection="d.c"), mongo_url=NOBODY)
    assert "privilege" not in str(refused.value)
    assert "Topology" not in str(refused.value)


def test_the_command_line_has_a_version() -> None:
    done = CliRunner().invoke(command_line, ["--version"])
    assert (done.exit_code, done.stdout) == (0, f"quaestor {metadata.version('quaestor')}\n")


class Records(logging.Handler):
    """A handler that keeps its records.

    Attributes:
        kept: the records, oldest first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.kept.append(record)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"debug_header": True}, r"'debug_header' is one of Quaestor's; write Quaestor\(debug_header=\.\.\.\)"),
        ({"sketch_pth": "/s"}, "knows no argument 'sketch_pth'; did you mean 'sketch_path'"),
        ({"zzz": 1}, "knows no argument 'zzz'; known: browser_client, cdn, "),
        ({"quaestor": "mongodb://ann:secret@localhost/"}, r"quaestor is a str; write quaestor=Quaestor\(\)"),
        ({"quaestor": None}, "quaestor is missing"),
    ],
)
def test_a_wrong_argument_of_the_middleware_is_one_readable_error_at_start(
    given: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Raised where a module constructs it; where Starlette does, the server logs the sentence and does not start."""
    arguments = {"quaestor": Quaestor(grid=False)} | given
    with pytest.raises(ConfigurationError, match=message):
        QuaestorMiddleware(Starlette(), **arguments)
    app = Starlette()
    app.add_middleware(QuaestorMiddleware, **arguments)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, log_level="error"))
    # A level and a handler of this test alone: other tests' servers leave those of the logger changed.
    records = Records()
    monkeypatch.setattr(logging.getLogger("uvicorn.error"), "handlers", [records])
    monkeypatch.setattr(logging.getLogger("uvicorn.error"), "disabled", False)
    with suppress(SystemExit):  # newer servers exit, older ones return
        server.run()
    assert not server.started
    sentence, end = (record.getMessage() for record in records.kept if record.levelno >= logging.ERROR)
    assert re.search(message, sentence)
    assert end == "Application startup failed. Exiting."
    assert "secret" not in sentence


def test_help_shows_the_real_parameters_of_the_middleware() -> None:
    """inspect, help() and editors see each argument with its type and default; an instance keeps the signature of its call."""
    parameters = inspect.signature(QuaestorMiddleware).parameters
    assert list(parameters) == list(inspect.signature(QuaestorMiddleware.__init__).parameters)[1:]
    assert parameters["sketch_path"].default == "/quaestor/sketch"
    # Newer versions of Python write each parameter on a line of its own, behind a bar.
    first_lines = " ".join(pydoc.plain(pydoc.render_doc(QuaestorMiddleware)).replace("|", " ").split())[:200]
    assert "app: 'App', *, quaestor: 'Engine', cdn: " in first_lines
    middleware = QuaestorMiddleware(Starlette(), quaestor=Quaestor(grid=False))
    assert list(inspect.signature(middleware).parameters) == ["scope", "receive", "send"]


@pytest.mark.anyio
async def test_an_error_of_a_part_of_the_middleware_is_shown_at_start_too() -> None:
    """Each request shows the error where an app is run without its lifespan."""
    app = Starlette()
    app.add_middleware(QuaestorMiddleware, quaestor=Quaestor(grid=False), routes={"items": cached(ttl=60)})
    with pytest.raises(ConfigurationError, match=r"the app refused lifespan\.startup: routes: 'items' is no path"):
        async with started(app):
            pass
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop.test") as http:
        with pytest.raises(ConfigurationError, match=r"^routes: 'items' is no path"):
            await http.get("/")


def test_an_unknown_setting_is_named_with_the_nearest_one() -> None:
    for construct in (Quaestor, Quaestor.from_env):
        with pytest.raises(
            ConfigurationError, match=r"Quaestor\(\) knows no argument 'debug_heder'; did you mean 'debug_header'"
        ):
            construct(debug_heder=True)
