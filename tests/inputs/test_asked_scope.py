"""The scope that a handler sees records its reads, for each way of reading; and which of them count as inputs."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from starlette.datastructures import Headers
from starlette.requests import Request

from quaestor.middleware.asked_scope import hand_back, recorded, unrecorded
from quaestor.policy import DEFAULT, RoutePolicy, Sharing
from quaestor.read_path.asked_fields import AskedFields, deciding, refusal
from quaestor.read_path.vary import variant_key

FIELDS = [(b"host", b"a"), (b"user-agent", b"x"), (b"accept", b"*/*")]


def scope(headers: list[tuple[bytes, bytes]] = FIELDS) -> dict[str, Any]:
    return {
        "type": "http", "method": "GET", "scheme": "http", "path": "/", "query_string": b"", "headers": headers,
        "client": ("1.2.3.4", 5), "server": ("a", 80), "org": "1",
    }  # fmt: skip


Ask = Callable[[dict[str, Any]], Any]
X = (b"x-org-id",)
ALL = (b"*",)


@pytest.mark.parametrize(
    ("ask", "decides"),
    [
        (lambda s: Request(s).headers.get("X-Org-Id"), X),
        (lambda s: "x-org-id" in Request(s).headers, X),
        (lambda s: Request(s).headers.getlist("x-org-id"), X),
        (lambda s: Headers(raw=s["headers"]).get("x-org-id"), X),
        (lambda s: Request({**s}).headers.get("x-org-id"), X),
        (lambda s: Request(dict(s)).headers.mutablecopy().get("x-org-id"), X),
        (lambda s: [v for n, v in s["headers"] if n == b"x-org-id"], X),
        (lambda s: [v for n, v in s["headers"] if n.lower() == b"x-org-id"], X),
        (lambda s: [v for n, v in s["headers"] if n != b"x-org-id"], X),
        (lambda s: [v for n, v in s["headers"] if n in (b"x-org-id",)], X),
        (lambda s: (b"x-org-id", b"1") in s["headers"], X),
        (lambda s: [v for n, v in list(s["headers"])[:1] if n == b"x-org-id"], X),
        (lambda s: dict(s["headers"]).get(b"x-org-id"), ALL),
        (lambda s: dict(Request(s).headers), ALL),
        (lambda s: Request(s).headers.items(), ALL),
        (lambda s: [v for n, v in s["headers"] if n in {b"x-org-id"}], ALL),
        (lambda s: [v for n, v in s["headers"] if n.startswith(b"x-org")], ALL),
        (lambda s: [n.decode() for n, _ in s["headers"]], ALL),
        (lambda s: sorted(s["headers"]), ALL),
        (lambda s: f"{s['headers']}", ALL),
        (lambda s: s["headers"][0][0] + b"", ALL),
        (lambda s: b"" + s["headers"][0][0], ALL),
        (lambda s: [bytes(n) for n, _ in s["headers"]], ALL),
        (lambda s: Request(s).url, ()),
        (lambda s: Request(s).cookies, ()),
        (lambda s: len(Request(s).headers), ()),
        (lambda s: Request(s).headers.get("if-none-match"), ()),
        (lambda s: Request(s).headers.get("traceparent"), ()),
        (lambda s: Request(s).headers.get("authorization"), ()),
        (lambda s: Request(s).headers.get("accept-encoding"), ()),
        (lambda s: Request(s).headers.get("x-tenant"), (b"x-tenant",)),
        (lambda s: Request(s).headers.get("no name"), ()),
        (lambda s: unrecorded(s)["headers"][0][0].decode(), ()),
    ],
)  # fmt: skip
def test_which_fields_were_asked_for(ask: Ask, decides: tuple[bytes, ...]) -> None:
    fields = AskedFields()
    ask(recorded(scope(), fields))
    assert deciding(fields, DEFAULT, (), ignored=frozenset()) == decides


@pytest.mark.parametrize(
    ("ask", "noticed"),
    [
        (lambda s: Request(s).client, True),
        (lambda s: s["client"][0], True),
        (lambda s: [*s["client"]], True),
        (lambda s: str(s["client"]), True),
        (lambda s: s["client"] == ("1.2.3.4", 5), True),
        (lambda s: {**s}["client"][0], True),
        (lambda s: s["client"] is None or not s.get("client"), False),
        (lambda s: unrecorded(s)["client"][0], False),
        (lambda s: dict(s), False),
    ],
)
def test_whether_the_client_s_address_was_asked_for(ask: Ask, noticed: bool) -> None:
    fields = AskedFields()
    ask(recorded(scope(), fields))
    assert fields.client is noticed
    fields.entries.clear()
    assert (refusal(fields, DEFAULT, frozenset()) is not None) is noticed
    assert refusal(fields, DEFAULT, {b"client-address"}) is None


@pytest.mark.parametrize(
    ("ask", "noticed"),
    [
        (lambda s: s["org"], {"scope.org"}),
        (lambda s: s.get("org"), {"scope.org"}),
        (lambda s: s.get("absent"), {"scope.absent"}),
        (lambda s: "org" in s, {"scope.org"}),
        (lambda s: dict(s), {"scope.org"}),
        (lambda s: {**s}, {"scope.org"}),
        (lambda s: s.copy(), {"scope.org"}),
        (lambda s: s.items(), {"scope.org"}),
        (lambda s: s.update(mine=1) or s["mine"], set()),
        (lambda s: s["path"] + s["type"], set()),
        (lambda s: s.setdefault("state", {}), set()),
        (lambda s: Request(s).state.tenant, {"state.tenant"}),
        (lambda s: getattr(Request(s).state, "absent", None), {"state.absent"}),
        (lambda s: dict(s["state"]), {"state.tenant"}),
        (lambda s: Request(s).state.pool, set()),
        (lambda s: setattr(Request(s).state, "mine", 1) or Request(s).state.mine, set()),
        (lambda s: unrecorded(s)["org"] + unrecorded(s)["state"]["tenant"], set()),
    ],
)
def test_which_entries_of_others_were_asked_for(ask: Ask, noticed: set[str]) -> None:
    fields, pool = AskedFields(), object()
    ask(recorded({**scope(), "state": {"tenant": "a", "pool": pool}}, fields, shared={"pool": pool}))
    assert fields.entries == noticed
    public = RoutePolicy(sharing=Sharing.PUBLIC)
    assert (refusal(fields, DEFAULT, frozenset()) is not None) is bool(noticed)
    assert refusal(fields, public, frozenset()) is None
    assert refusal(fields, DEFAULT, {name.encode() for name in noticed}) is None


def test_credentials_count_where_a_scope_is_only_implied() -> None:
    implied = RoutePolicy(sharing=Sharing.PUBLIC, implied=True)
    fields = AskedFields()
    assert Request(recorded(scope(), fields)).headers.get("authorization") is None
    assert deciding(fields, implied, (), ignored=frozenset()) == (b"authorization",)
    fields.note_everything()
    assert deciding(fields, implied, (), ignored=frozenset()) == (b"**",)
    keys = {variant_key("k", (b"**",), [(b"cookie", value)]) for value in (b"1", b"2")}
    assert len(keys) == 2
    assert len({variant_key("k", (b"*",), [(b"cookie", value)]) for value in (b"1", b"2")}) == 1
    somebody = AskedFields()
    assert recorded({**scope(), "user": "ann"}, somebody)["user"] == "ann"
    assert refusal(somebody, implied, frozenset()) is not None
    assert refusal(somebody, DEFAULT, frozenset()) is None


def test_declared_and_body_fields_have_their_own_place_in_the_key() -> None:
    fields = AskedFields()
    fields.note(b"x-org-id")
    fields.note(b"content-type")
    policy = RoutePolicy(headers=X)
    assert deciding(fields, policy, (), ignored=frozenset()) == (b"content-type",)
    assert deciding(fields, policy, (), ignored=frozenset(), with_body=True) == ()


def test_a_name_is_the_same_name_to_everybody() -> None:
    """Applications copy, pickle and print scopes, and are not to see a difference."""
    shown = recorded(scope(), AskedFields())
    names = [name for name, _ in shown["headers"]]
    assert names == [name for name, _ in FIELDS]
    assert dict(shown["headers"]) == dict(FIELDS)
    assert repr(names) == repr([name for name, _ in FIELDS])
    assert json.dumps(Request(shown).headers.keys()) == '["host", "user-agent", "accept"]'
    assert pickle.loads(pickle.dumps(unrecorded(shown))) == {**scope(), "state": {}}
    assert copy.deepcopy(unrecorded(shown)) == {**scope(), "state": {}}
    assert shown["client"] == ("1.2.3.4", 5)
    assert hash(shown["client"]) == hash(("1.2.3.4", 5))


def test_values_that_the_application_leaves_in_its_scope_are_seen_around_it() -> None:
    own = scope()
    own["state"] = state = {"a": 1}
    shown = recorded({**own, "query_string": b"kept=1"}, AskedFields())
    shown["route"], shown["path"] = "r", "/rewritten"
    shown["state"]["b"] = 2
    hand_back(shown, own, changed=False)
    assert (own["route"], own["path"]) == ("r", "/")
    hand_back(shown, own, changed=True)
    assert (own["path"], own["query_string"], own["client"]) == ("/rewritten", b"", ("1.2.3.4", 5))
    assert type(own["client"]) is tuple
    assert own["state"] is state
    assert type(state) is dict
    assert state == {"a": 1, "b": 2}
