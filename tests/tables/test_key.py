"""Keys and resources. The pairs of RESOURCES are the specification that clients in other languages are held to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaestor.read_path.key import MAX_TARGET_BYTES, resource, spelling, target, usual_target

RESOURCES = [
    # path, query, resource
    (b"/", b"", "/"),
    (b"", b"", "/"),
    (b"/a", b"", "/a"),
    (b"/a", b"b=1&a=2", "/a?a=2&b=1"),
    (b"/a", b"b=2&a=1&b=1", "/a?a=1&b=2&b=1"),
    (b"/a", b"b&a=&a", "/a?a=&a&b"),
    (b"/a", b"&&a=1&", "/a?a=1"),
    (b"/a", b"&", "/a"),
    (b"/a", b"=x&a=1", "/a?=x&a=1"),
    (b"/a", b"a=1=2&a", "/a?a=1=2&a"),
    (b"/a", b"B=1&a=2", "/a?B=1&a=2"),
    (b"/%7euser/%41%2f", b"", "/~user/A%2F"),
    (b"/caf%c3%a9", b"q=%e2%82%ac", "/caf%C3%A9?q=%E2%82%AC"),
    (b"/caf\xc3\xa9", b"q=\xe2\x82\xac", "/caf%C3%A9?q=%E2%82%AC"),
    (b"/a%", b"q=%zz&p=100%", "/a%25?p=100%25&q=%25zz"),
    (b"/a", b"q=a+b&p=a%20b", "/a?p=a%20b&q=a+b"),
    (b"/a b\"<>\\^`{|}[]", b"", "/a%20b%22%3C%3E%5C%5E%60%7B%7C%7D%5B%5D"),
    (b"/a;v=1,2:@!$&'()*", b"x=/?:@'()*!$,;", "/a;v=1,2:@!$&'()*?x=/?:@'()*!$,;"),
    (b"/a/../b/./c//d", b"", "/a/../b/./c//d"),
    (b"/a", b"%61=2&b=1&a=1", "/a?a=2&a=1&b=1"),
    (b"/a", b"x=%26&y=%3d", "/a?x=%26&y=%3D"),
    (b"/a\x00\x7f", b"", "/a%00%7F"),
    (b"/a?b", b"", "/a%3Fb"),
    (b"/a%3Fb", b"", "/a%3Fb"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "query", "expected"), RESOURCES)
def test_resources_are_computed_as_specified(path: bytes, query: bytes, expected: str) -> None:
    assert resource(path, query) == expected


@pytest.mark.parametrize(
    ("scheme", "host", "key"),
    [
        ("http", b"Shop.Example", "http://shop.example/a?b=1"),
        ("http", b"shop.example:80", "http://shop.example/a?b=1"),
        ("https", b"shop.example:443", "https://shop.example/a?b=1"),
        ("https", b"shop.example:80", "https://shop.example:80/a?b=1"),
        ("http", b"[::1]:8000", "http://[::1]:8000/a?b=1"),
        ("http", b"", "http:///a?b=1"),
    ],
)
def test_keys_carry_scheme_and_host(scheme: str, host: bytes, key: str) -> None:
    target_found = target(scheme, host, b"/a", b"b=1")
    assert target_found is not None
    assert target_found.key == key
    assert target_found.resource == "/a?b=1"


def test_the_url_is_what_the_cdn_was_asked_for() -> None:
    target_found = target("https", b"Shop.Example", b"/%61", b"b=1&a=2")
    assert target_found is not None
    assert target_found.url == "https://Shop.Example/%61?b=1&a=2"


@pytest.mark.parametrize(
    "host", [b"a b", b"a/b", b"a?b", b"a@b", b"x" * 300, b"a:b:c", b"a:123456", b"\xff", b"[::1", b"a%41", b"a\r\nb"]
)
def test_malformed_hosts_are_not_keyed(host: bytes) -> None:
    assert target("http", host, b"/", b"") is None


def test_enormous_targets_are_not_keyed() -> None:
    assert target("http", b"a", b"/", b"a" * MAX_TARGET_BYTES) is None
    assert target("http", b"a", b"/" + b"a" * (MAX_TARGET_BYTES - 1), b"") is not None


@given(path=st.binary(max_size=40), query=st.binary(max_size=40))
def test_a_resource_is_its_own_resource_and_plain_ascii(path: bytes, query: bytes) -> None:
    """Normalising is idempotent, so that a client may compute it from either spelling. Never raises."""
    path = path.replace(b"?", b"")
    once = resource(path, query)
    assert once.isascii()
    assert once.isprintable()
    first, _, second = once.encode().partition(b"?")
    assert resource(first, second) == once


@given(pieces=st.lists(st.sampled_from([b"a=1", b"b=1", b"b=2", b"c", b""]), max_size=6), data=st.data())
def test_only_the_order_of_different_names_is_ignored(pieces: list[bytes], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(pieces))

    def by_name(order: list[bytes]) -> dict[bytes, list[bytes]]:
        spellings: dict[bytes, list[bytes]] = {}
        for piece in order:
            if piece:
                spellings.setdefault(piece.partition(b"=")[0], []).append(piece)
        return spellings

    same = resource(b"/", b"&".join(pieces)) == resource(b"/", b"&".join(shuffled))
    assert same == (by_name(pieces) == by_name(shuffled))


_SPELT = st.text("aZ0-._~!$&'()*+,;=:@/?%4#\x00é", max_size=12).map(lambda text: text.encode("latin-1"))


@given(
    scheme=st.sampled_from(["http", "https"]),
    host=st.sampled_from([b"a.example", b"A.Example", b"a.example:80", b"a.example:443", b"[::1]:8000", b"", b"a b"]),
    path=_SPELT | _SPELT.map(lambda path: b"/" + path),
    query=_SPELT,
)
def test_usual_targets_have_the_names_of_all_targets(scheme: str, host: bytes, path: bytes, query: bytes) -> None:
    """The shorter way either finds the same names, or leaves the request to the longer one."""
    usual = usual_target(scheme, host, path, query)
    assert usual is None or (usual == target(scheme, host, path, query) and not spelling(path, query))


def test_a_question_mark_within_a_path_begins_no_query() -> None:
    """A server may hand over such a path; its key is not that of the path before the mark."""
    assert usual_target("http", b"a.example", b"/?0", b"") is None


@pytest.mark.parametrize(("path", "query"), [(b"/", b""), (b"/a/b.c", b""), (b"/a", b"n=1"), (b"/a", b"n")])
def test_most_targets_are_usual(path: bytes, query: bytes) -> None:
    assert usual_target("http", b"a.example", path, query) is not None
    assert usual_target("http", b"a.example", path, b"a=1&b=2") is None
