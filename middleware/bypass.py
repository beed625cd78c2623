"""Requests that bypass the cache: their handler runs unrecorded, and its answer is not held back."""

from __future__ import annotations

from typing import Any

from quaestor.capture import logging_writes
from quaestor.errors import StoreError
from quaestor.middleware.context import ExchangeContext
from quaestor.middleware.headers import HeaderPolicy
from quaestor.middleware.interface import App, Receive, Scope, Send
from quaestor.middleware.own_writes import after_own_writes
from quaestor.middleware.storable_fields import of_connection
from quaestor.read_path import freshening, shared_cache_rules
from quaestor.read_path.entries import Answer
from quaestor.read_path.service import ReadPath
from quaestor.store.memory import Resident


async def pass_by(
    app: App,
    read_path: ReadPath,
    outgoing: HeaderPolicy,
    scope: Scope,
    receive: Receive,
    send: Send,
    *,
    reason: str,
    how: bytes = b"fwd=bypass",
) -> None:
    """Run the handler without recording or holding back; only add header fields that forbid or allow keeping the answer.

    how: the parameters of Cache-Status.
    """
    read_path.process.telemetry.requests.requests.labels("bypass").inc()
    read_path.process.telemetry.requests.refused((reason,))

    async def say(message: Any) -> None:
        if message["type"] == "http.response.start":
            headers = outgoing.withheld(message["status"], message.get("headers", ()), (reason,), how)
            message = {**message, "headers": headers}
        await send(message)

    with logging_writes() as log:
        await app(scope, receive, after_own_writes(read_path.own_writes, log, say))


async def pass_head_by(context: ExchangeContext, resident: Resident) -> None:
    """Run the handler for a HEAD that finds an expired explicit entry. The fields of its answer freshen the entry, or drop it if
    they belong to another answer (RFC 9111, section 4.3.5)."""
    read_path, send = context.parts.read_path, context.send
    stored, asked_ms = resident.response, read_path.clock()

    async def learn(message: Any) -> None:
        if message["type"] == "http.response.start" and message["status"] == 200 == stored.status:
            fields = [(bytes(name).lower(), bytes(value)) for name, value in message.get("headers", ())]
            if freshening.head_agrees(stored.headers, fields):
                await _freshen(fields)
            else:
                read_path.lookup.drop(stored.key)
        await send(message)

    async def _freshen(fields: list[tuple[bytes, bytes]]) -> None:
        headers = freshening.freshened(stored.headers, fields, dropped=of_connection(fields))
        refused = shared_cache_rules.refusal(
            stored.status, headers, credentials=context.credentials, now_s=read_path.clock() / 1000,
            authorization_only=context.facts.authorization_only, unlisted=context.facts.unlisted,
            heuristic=read_path.process.settings.lifetimes.heuristic_fraction,
        )  # fmt: skip
        if refused is not None:
            return read_path.lookup.drop(stored.key)
        try:
            await read_path.explicit.keep(
                Answer(status=stored.status, headers=headers, body=stored.body),
                key=stored.key, resource=stored.resource, asked_ms=asked_ms, policy=context.plan.policy,
            )  # fmt: skip
        except StoreError as error:
            read_path.process.telemetry.failure("store", "read_path.store_failed", error)

    late = read_path.clock() >= stored.fresh_until_ms
    await pass_by(
        context.parts.app, read_path, context.parts.outgoing, context.scope, context.receive, learn,
        reason="request", how=b"fwd=stale" if late else b"fwd=request",
    )  # fmt: skip
