"""The published protocol of live queries: the schema says what the endpoint sends and takes, and vectors say what it refuses."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from quaestor.live.websocket.answers import asyncapi
from quaestor.live.websocket.problems import ProtocolError
from quaestor.live.websocket.requests import Subscribe, parse_request
from tests.architecture.sources import ROOT

DOCUMENT = ROOT / "docs/reference/live_queries.asyncapi.json"
VECTORS = json.loads((ROOT / "docs/reference/live_queries.vectors.json").read_text())


def test_the_published_document_is_that_of_the_models() -> None:
    """Every reference in it leads somewhere, and every message of both directions is in it."""
    document = json.loads(DOCUMENT.read_text())
    assert document == asyncapi(), "run `make live-schema`"
    text = DOCUMENT.read_text()
    for name in set(re.findall(r'"#/([^"]+)"', text)):
        place: Any = document
        for part in name.split("/"):
            place = place[part]
    assert {name.partition("-")[2] for name in document["channels"]["live"]["messages"]} >= {
        "subscribe", "unsubscribe", "resume", "token", "ping", "cut", "result", "match", "error", "pong",
    }  # fmt: skip


@pytest.mark.parametrize("vector", VECTORS["accepted"], ids=lambda vector: vector["name"])
def test_accepted_messages(vector: dict[str, Any]) -> None:
    """Each message is read with its defaults, the thesis' own example among them."""
    request = parse_request(json.dumps(vector["message"]))
    for name, value in vector.get("read_as", {}).items():
        assert getattr(request, name) == value


@pytest.mark.parametrize("vector", VECTORS["refused"], ids=lambda vector: vector["name"])
def test_refused_messages(vector: dict[str, Any]) -> None:
    """Each with 400, the subscription if the message names one, and the field that is wrong."""
    text = vector["text"] if "text" in vector else json.dumps(vector["message"])
    with pytest.raises(ProtocolError) as refused:
        parse_request(text)
    assert refused.value.status == 400
    assert refused.value.message.startswith(vector["field"]), refused.value.message
    assert refused.value.id == vector.get("id")


def test_version_one_has_no_field_that_must_be_given_beside_the_thesis_own() -> None:
    """A client of the thesis is understood: all extensions have defaults."""
    required = {name for name, field in Subscribe.model_fields.items() if field.is_required()}
    assert required == {"type", "id", "bucket"}
