"""Bytes and hashes that tell records apart for partitioning."""

from __future__ import annotations

from typing import Any

import bson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaestor.event_layer.partitioning import record_key, write_partition
from quaestor.query.encoding import OPTIONS

KEYS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**31) - 2, -(2**31) + 2),
    st.integers(2**31 - 2, 2**31 + 2),
    st.text(),
    st.text("aé€😀", min_size=1020, max_size=1030),
    st.binary(min_size=12, max_size=12).map(bson.ObjectId),
    st.booleans(),
    st.none(),
    st.floats(allow_nan=False),
    st.uuids(),
    st.integers(-(2**63), 2**63 - 1).map(bson.Int64),
    st.dictionaries(st.text("ab", max_size=2), st.integers(0, 9)),
)


@given(KEYS)
def test_a_records_key_is_its_id_in_bson(key: Any) -> None:
    assert record_key(key) == bson.encode({"": key}, codec_options=OPTIONS)


@pytest.mark.parametrize("key", [object(), 2**64, {"a": object()}])
def test_values_unknown_to_bson_are_no_keys(key: Any) -> None:
    with pytest.raises((bson.errors.BSONError, OverflowError)):
        record_key(key)


@given(KEYS, st.integers(2, 16))
def test_a_record_has_one_write_partition(key: Any, partitions: int) -> None:
    assert write_partition(key, 1) == 0
    assert 0 <= write_partition(key, partitions) < partitions
