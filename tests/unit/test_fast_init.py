"""Frozen dataclasses that are made as fast as plain ones are dataclasses in every other way."""

from __future__ import annotations

import copy
import inspect
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace

import pytest

from quaestor.fast_init import fast_init


@dataclass(frozen=True, slots=True)
class Slow:
    """With every kind of field."""

    first: int
    second: str = "b"
    listed: list[int] = field(default_factory=list, compare=False)
    named: bool = field(default=True, kw_only=True, repr=False)


@fast_init
@dataclass(frozen=True, slots=True)
class Fast:
    """The same."""

    first: int
    second: str = "b"
    listed: list[int] = field(default_factory=list, compare=False)
    named: bool = field(default=True, kw_only=True, repr=False)


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """With a field that is worked out."""

    given: int
    doubled: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "doubled", 2 * self.given)


def test_it_is_made_in_the_same_ways() -> None:
    assert str(inspect.signature(Fast)) == str(inspect.signature(Slow))
    assert repr(Fast(1)) == repr(Slow(1)).replace("Slow", "Fast")
    assert [each.name for each in fields(Fast)] == [each.name for each in fields(Slow)]
    assert Fast(1).listed is not Fast(1).listed
    assert (Derived(given=2).doubled, replace(Derived(given=2), given=3).doubled) == (4, 6)


def test_it_is_compared_hashed_and_copied_the_same() -> None:
    one = Fast(1, named=False)
    assert one == Fast(1, listed=[7], named=False) != Fast(1)
    assert hash(one) == hash(Slow(1, named=False))
    assert copy.copy(one) == pickle.loads(pickle.dumps(one)) == replace(Fast(1), named=False) == one


def test_only_type_checkers_refuse_assignments() -> None:
    """The price, as documented."""
    with pytest.raises(FrozenInstanceError):
        Slow(1).first = 2  # type: ignore[misc]
    changed = Fast(1)
    changed.first = 2  # type: ignore[misc]
    assert changed == Fast(2)
