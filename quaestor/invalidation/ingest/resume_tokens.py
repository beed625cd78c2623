"""Cluster time in a resume token of a change stream."""

from __future__ import annotations

from typing import Any, Final

from quaestor.model import Version

_TIMESTAMP: Final = 0x82
"""Byte that a KeyString puts before a timestamp."""


def time_of_token(token: Any) -> Version:
    """Return the cluster time in a resume token: the first value of a KeyString, in hexadecimal; 0 for another form.

    https://github.com/mongodb/mongo/blob/master/src/mongo/db/pipeline/resume_token.h
    """
    try:
        data = bytes.fromhex(token["_data"][:18])
    except (TypeError, KeyError, ValueError):
        return 0
    return int.from_bytes(data[1:], "big") if len(data) == 9 and data[0] == _TIMESTAMP else 0
