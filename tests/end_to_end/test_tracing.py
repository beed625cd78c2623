"""Spans, through the real SDK; trace ids in log lines; explanations that give nothing away."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import structlog
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from quaestor.caching import Declaration, cached, header, per_user
from quaestor.errors import RegistrationRefusedError
from quaestor.invalidation.effects.effects import Effects
from quaestor.middleware import QuaestorMiddleware
from quaestor.model import Cell, Dependent, Invalidated, MatchType
from quaestor.observability.tracing import trace_id_of, version_text
from quaestor.read_path.local_store import EntryStorage
from quaestor.runtime.supervision.process_context import ProcessContext
from tests.hand_driven import HandEngine, TaggingCdn, reads
from tests.support import eventually

pytestmark = pytest.mark.anyio

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


@pytest.fixture(scope="module")
def exporter() -> InMemorySpanExporter:
    """The provider of a process can be set once only."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


@pytest.fixture
def spans(exporter: InMemorySpanExporter) -> Iterator[InMemorySpanExporter]:
    exporter.clear()
    yield exporter
    exporter.clear()


class Site:
    def __init__(self, *, declared: Declaration | None = None, **settings: Any) -> None:
        self.engine = HandEngine(**settings)
        self.fails = False

        async def page(scope: Any, receive: Any, send: Any) -> None:
            with trace.get_tracer("handler").start_as_current_span("own"):
                reads("secret-value")
            if self.fails:
                raise ValueError("the handler's own secret")
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"x"})

        rules = {} if declared is None else {"/": declared}
        app = QuaestorMiddleware(page, quaestor=self.engine, routes=rules)
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x")

    async def get(self, **headers: str) -> httpx.Response:
        return await self.http.get("/?token=in-the-url", headers=headers)


def by_name(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in exporter.get_finished_spans()}


def parent_of(span: ReadableSpan) -> int:
    assert span.parent is not None
    return span.parent.span_id


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


async def test_a_miss_is_a_span_with_its_steps_below_the_one_that_asked(spans: InMemorySpanExporter) -> None:
    await Site(tracing=True).get(traceparent=PARENT)
    named = by_name(spans)
    request = named["quaestor.request"]
    assert request.context is not None
    assert f"{request.context.trace_id:032x}" == TRACE
    assert parent_of(request) == 0xB7AD6B7169203331
    for step in ("quaestor.handler", "quaestor.activation", "quaestor.store"):
        assert parent_of(named[step]) == id_of(request), step
    assert parent_of(named["own"]) == id_of(named["quaestor.handler"]), "what the handler traces lies below it"
    assert (named["quaestor.handler"].end_time or 0) <= (named["quaestor.activation"].start_time or 0)
    assert dict(request.attributes or {})["quaestor.state"] == "served"
    assert dict(named["quaestor.handler"].attributes or {})["quaestor.missing"] == "absent"


async def test_a_hit_has_no_span(spans: InMemorySpanExporter) -> None:
    site = Site(tracing=True)
    await site.get()
    spans.clear()
    assert "hit" in (await site.get(traceparent=PARENT)).headers["cache-status"]
    assert spans.get_finished_spans() == ()


async def test_a_current_span_wins_over_the_field(spans: InMemorySpanExporter) -> None:
    with trace.get_tracer("server").start_as_current_span("server") as server:
        await Site(tracing=True).get(traceparent=PARENT)
    assert parent_of(by_name(spans)["quaestor.request"]) == server.get_span_context().span_id


async def test_nothing_is_traced_unless_it_is_switched_on(spans: InMemorySpanExporter) -> None:
    await Site().get(traceparent=PARENT)
    assert [span.name for span in spans.get_finished_spans()] == ["own"]


async def test_a_handler_that_raises_ends_its_spans_and_they_do_not_quote_it(spans: InMemorySpanExporter) -> None:
    site = Site(tracing=True)
    site.fails = True
    with pytest.raises(ValueError, match="own secret"):
        await site.get()
    ours = [span for span in spans.get_finished_spans() if span.name.startswith("quaestor.")]
    assert {span.name for span in ours} == {"quaestor.request", "quaestor.handler"}
    assert "secret" not in "".join(span.to_json() for span in ours)


async def test_spans_give_nothing_of_a_request_away(spans: InMemorySpanExporter) -> None:
    await Site(tracing=True).get(cookie="session=ann")
    await Site(tracing=True).get()
    text = "".join(span.to_json() for span in spans.get_finished_spans())
    for secret in ("secret-value", "in-the-url", "ann"):
        assert secret not in text


async def test_the_effects_of_a_write_are_spans_that_name_its_version(spans: InMemorySpanExporter) -> None:
    engine = HandEngine(tracing=True)
    cdn = TaggingCdn()

    class Registrations:
        origin = "me"

        def keep_dead(self, registration_ids: Any) -> None: ...

        def cancel(self, registration_ids: Any) -> None: ...

        def resume(self) -> None: ...

    effects = Effects(
        Registrations(),
        EntryStorage(store=engine.store, index=engine.index, sketch=engine.sketch),
        engine.estimator,
        ProcessContext.of(engine.settings, telemetry=engine.telemetry, clock=engine.clock),
        forget=lambda names: [],
    )
    effects.cdn.append(cdn)
    await effects.start()
    await engine.sketch.report_read("/a", expires_at_ms=engine.clock() + 10_000, now_ms=engine.clock())
    await engine.index.add(
        Dependent(
            key="http://x/a", registrations=("me:1",), resource="/a", urls=("http://x/a",), tags=("q1",),
            copies_until_ms=engine.clock() + 10_000,
        )
    )  # fmt: skip
    effects.notify(
        [
            Invalidated(
                registration_ids=("me:1",), query_id="q", match_type=MatchType.ADD, version=5 << 32 | 7, key=1,
                written_at_ms=engine.clock(), source=Cell(query_partition=0, write_partition=0), exact=True,
            )
        ]
    )  # fmt: skip
    await eventually(lambda: "quaestor.purge" in by_name(spans))
    await effects.stop()
    named = by_name(spans)
    cause = named["quaestor.invalidation"]
    assert dict(cause.attributes or {})["quaestor.versions"] == ("5.7",)
    assert parent_of(named["quaestor.claim"]) == parent_of(named["quaestor.purge"]) == id_of(cause)
    assert engine.count("invalidations", match_type="add", precision="exact") == 1


async def test_a_log_line_carries_the_trace_id_of_its_request_with_or_without_spans() -> None:
    for tracing in (False, True):
        site = Site(tracing=tracing)
        site.engine.sketch.down = True

        async def refuse(site: Site = site) -> None:
            site.engine.telemetry.event("test.said")
            raise RegistrationRefusedError("no room for 'secret-value'")

        site.engine.registry.before_register = refuse
        with structlog.testing.capture_logs() as lines:
            await site.get(traceparent=PARENT)
            site.engine.telemetry.event("test.later")
        assert [line.get("trace_id") for line in lines] == [TRACE, None]


@pytest.mark.parametrize(
    "value",
    [b"", b"00", PARENT.upper().encode(), b"00-" + b"0" * 32 + b"-b7ad6b7169203331-01", b"x" * 10_000, b"\xff" * 55],
)
def test_a_field_that_is_no_traceparent_names_no_trace(value: bytes) -> None:
    assert trace_id_of([(b"traceparent", value)]) is None
    assert trace_id_of([(b"traceparent", PARENT.encode())] * 2) is None


def test_versions_are_written_as_the_database_writes_them() -> None:
    assert version_text(1_700_000_000 << 32 | 3) == "1700000000.3"


def test_without_the_package_tracing_says_what_to_install_and_everything_else_works() -> None:
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from quaestor import Quaestor\n"
        "from quaestor.errors import ConfigurationError\n"
        "Quaestor()\n"
        "try:\n    Quaestor(tracing=True)\n"
        "except ConfigurationError as error:\n    assert 'quaestor[otel]' in str(error); print('said so')\n"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240)
    assert output.stdout == "said so\n"


async def test_an_explanation_names_no_values_and_no_other_user() -> None:
    site = Site(declared=cached(scope=per_user(by=header("x-user")), headers=["x-language"]), debug_header=True)
    texts = []
    for user in ("ann", "bob", "ann"):
        answer = await site.get(**{"x-user": user, "x-language": "klingon"})
        texts.append(answer.headers["x-quaestor-explain"])
    assert texts[2].startswith("from memory")
    assert "audience (per-user), headers (x-language); sharing: per-user; policy: declared" in texts[0]
    for text in texts:
        for secret in ("ann", "bob", "klingon", "secret-value", "in-the-url"):
            assert secret not in text


async def test_a_failed_store_is_explained_without_quoting_the_error() -> None:
    site = Site(debug_header=True)

    async def refuse() -> None:
        raise RegistrationRefusedError("cannot be matched: 'secret-value'")

    site.engine.registry.before_register = refuse
    explained = (await site.get()).headers["x-quaestor-explain"]
    assert explained == "not stored: refused. key: method and URL; sharing: undeclared; policy: default"


async def test_an_explanation_is_bounded() -> None:
    site = Site(declared=cached(headers=[f"x-{'y' * 50}-{i}" for i in range(60)]), debug_header=True)
    explained = (await site.get()).headers["x-quaestor-explain"]
    assert len(explained) <= 2048
    assert "..." in explained
