"""Structured fields: RFC 9651, as tables."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaestor.read_path.structured import MAX_FIELD_BYTES, Token, dictionary, strings


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("max-age=60", {"max-age": 60}),
        ("a, b=?0, c=?1", {"a": True, "b": False, "c": True}),
        ("a=1 ,\tb=2", {"a": 1, "b": 2}),
        ("a=1, a=2", {"a": 2}),
        ("a=1.5, b=-3, c=tok/x:y", {"a": 1.5, "b": -3, "c": "tok/x:y"}),
        (r'a="x\"y\\, b"', {"a": 'x"y\\, b'}),
        ("a=:aGk=:, b=@12, c=(1 2;x)", {"a": None, "b": None, "c": None}),
        ("a;p=1;q, b=2;r", {"a": True, "b": 2}),
        ('a=%"f%c3%bc", b=2', {"a": None, "b": 2}),
        ("a=1\t", {"a": 1}),
        ("a=:a:", None),
        ("a=@999999999999999", None),
        ("*k.1_-=1", {"*k.1_-": 1}),
        (" a=1 ", {"a": 1}),
        ("", None),
        ("A=1", None),
        ("max-age =1", None),
        ("max-age= 1", None),
        ("a=1,", None),
        ("a=1,,b", None),
        ("a=1 b=2", None),
        ("a=", None),
        ('a="x', None),
        ("a='x'", None),
        ("a=1.2345", None),
        ("a=1234567890123456", None),
        ("a=(1 2", None),
        ("max-age=1, &&&&", None),
        ("a=ü", None),
    ],
)
def test_dictionaries_are_parsed_as_specified(field: str, expected: dict[str, Any] | None) -> None:
    """Structured dictionaries are parsed as RFC 9651 says."""
    assert dictionary([field.encode()]) == expected


def test_members_of_several_lines_are_one_dictionary() -> None:
    assert dictionary([b"a=1", b"b"]) == {"a": 1, "b": True}
    assert isinstance((dictionary([b"a=x"]) or {})["a"], Token)
    assert not isinstance((dictionary([b'a="x"']) or {})["a"], Token)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (['"a", "b;c"'], ("a", "b;c")),
        (['"a"', '"b"'], ("a", "b")),
        (['"a";p=1'], ("a",)),
        ([], ()),
        ([""], ()),
        (["a"], None),
        (["1"], None),
        (['"a",'], None),
        (['"a" "b"'], None),
        (['("a")'], None),
        (['"\t"'], None),
    ],
)
def test_lists_of_strings_are_parsed_as_specified(lines: list[str], expected: tuple[str, ...] | None) -> None:
    assert strings([line.encode() for line in lines]) == expected


def test_enormous_fields_are_as_if_they_were_not_there() -> None:
    assert dictionary([b"a" * (MAX_FIELD_BYTES + 1)]) is None
    assert strings([b'"%s"' % (b"a" * MAX_FIELD_BYTES)]) is None


@given(st.binary(max_size=60))
def test_garbage_in_fields_never_raises(data: bytes) -> None:
    dictionary([data])
    strings([data])
