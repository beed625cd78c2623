"""OpenTelemetry spans of misses and of invalidations, and the trace id in log lines.

Tracing is off unless the setting `tracing` is on. While it is off, a miss only checks one attribute. The hit path has no
spans and no cost. Spans go to the tracer provider that the application has set up (`opentelemetry.trace`), under the name
`quaestor`; without one they are no-ops.

A miss is a child of the current span (an instrumented server's), or else of the request's `traceparent` (W3C Trace Context,
level 1). The handler runs inside it, so the handler's own spans lie below. Attributes hold counts, reasons and names of
parts; no URLs, no keys, nothing of a request.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any

from quaestor.errors import ConfigurationError

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer

Headers = Iterable[tuple[bytes, bytes]]

_TRACEPARENT = re.compile(rb"[0-9a-f]{2}-(?P<trace>[0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(-.{0,200})?")
_NOTHING = b"0" * 32
_MOST_VERSIONS = 16
_NO_SPAN: AbstractContextManager[None] = nullcontext()
_asked: ContextVar[Headers] = ContextVar("quaestor_asked", default=())


def trace_id_of(headers: Headers) -> str | None:
    """Return the trace id of a request with exactly one well-formed `traceparent` field, else None."""
    parents = [value for name, value in headers if name == b"traceparent"]
    match = _TRACEPARENT.fullmatch(parents[0]) if len(parents) == 1 else None
    return None if match is None or match["trace"] == _NOTHING else match["trace"].decode()


def asked_by(headers: Headers) -> Token[Headers]:
    """Let log lines carry the request's trace id from now on, with or without spans, until asked_no_more()."""
    return _asked.set(headers)


def asked_no_more(token: Token[Headers]) -> None:
    """End the effect of asked_by()."""
    _asked.reset(token)


def version_text(version: int) -> str:
    """Return a version as MongoDB prints it: `seconds.increment`."""
    return f"{version >> 32}.{version & 0xFFFFFFFF}"


def versions_text(versions: Iterable[int]) -> list[str]:
    """Return the versions of the causing writes as text, each once, only the youngest few."""
    return [version_text(version) for version in sorted(set(versions) - {0})[-_MOST_VERSIONS:]]


class Tracing:
    """Spans of one Quaestor. Without `enabled` every call returns at once."""

    def __init__(self, *, enabled: bool = False) -> None:
        """Raises ConfigurationError if spans are wanted and opentelemetry-api is not installed."""
        self.enabled = enabled
        if enabled:
            try:
                from opentelemetry import trace
                from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
            except ImportError as error:
                raise ConfigurationError("tracing needs opentelemetry-api: install quaestor[otel]") from error
            self._trace = trace
            self._propagator = TraceContextTextMapPropagator()

    @property
    def _tracer(self) -> Tracer:
        # Read anew each time: the application may set its provider after making its Quaestor.
        return self._trace.get_tracer("quaestor")

    def request(self, name: str, headers: Headers) -> AbstractContextManager[Span | None]:
        """Return a span that is current inside, below the current one or the request's traceparent; ends with the block."""
        if not self.enabled:
            return _NO_SPAN
        parent: Context | None = None
        if not self._trace.get_current_span().get_span_context().is_valid and trace_id_of(headers) is not None:
            fields = {key.decode(): value.decode("latin-1") for key, value in headers if key in _CARRIED}
            parent = self._propagator.extract(fields)
        return self._tracer.start_as_current_span(
            name, context=parent, record_exception=False, set_status_on_exception=False
        )

    def span(self, name: str, **attributes: Any) -> AbstractContextManager[Span | None]:
        """Return a span that is current inside, and ends with the block."""
        if not self.enabled:
            return _NO_SPAN
        return self._tracer.start_as_current_span(
            name, attributes=_named(attributes), record_exception=False, set_status_on_exception=False
        )

    def inside(self, span: Span | None) -> AbstractContextManager[Span | None]:
        """Make a span current inside; it does not end with the block."""
        if span is None:
            return _NO_SPAN
        return self._trace.use_span(span, end_on_exit=False, record_exception=False, set_status_on_exception=False)

    def begin(self, name: str, **attributes: Any) -> Span | None:
        """Return a span for end(); current nowhere."""
        return self._tracer.start_span(name, attributes=_named(attributes)) if self.enabled else None

    def trace_id(self) -> str | None:
        """Return the trace id of the current span, or of the request that this code runs for; for log lines."""
        if self.enabled:
            context = self._trace.get_current_span().get_span_context()
            if context.is_valid:
                return f"{context.trace_id:032x}"
        return trace_id_of(_asked.get())


_CARRIED = frozenset({b"traceparent", b"tracestate"})


def _named(attributes: dict[str, Any]) -> dict[str, Any]:
    return {f"quaestor.{name}": value for name, value in attributes.items()}


def tell(span: Span | None, **attributes: Any) -> None:
    """Add attributes to a span that become known later."""
    if span is not None:
        span.set_attributes(_named(attributes))


def end(span: Span | None) -> None:
    """End a span of begin(). A second end changes nothing."""
    if span is not None and span.is_recording():
        span.end()
