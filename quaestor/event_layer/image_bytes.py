"""Images for the write pipelines, assembled from BSON values without decoding any of them.

The format is that of codec.py, field by field in its order; integers may be wider than necessary.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import bson

from quaestor.event_layer.codec import AFTER_EXACT, BEFORE_KNOWN, BSON_OPTIONS, FORMAT
from quaestor.model import WriteKind

_LENGTH: Final = 4
_BINARY: Final = b"\0"
_FLAGS: Final = tuple(b"\x10f\0%c\0\0\0" % flags for flags in range((AFTER_EXACT | BEFORE_KNOWN) + 1))


def image_bytes(
    *,
    kind: WriteKind,
    namespace: str,
    version: bytes,
    wall: bytes,
    key_type: bytes,
    key: bytes,
    exact: bool,
    known: bool,
    after: bytes | None,
    before: bytes | None,
    changed: bytes,
) -> bytes:
    """Return the payload that `encode_image` makes of the same image; see AfterImage.

    version: int64, little-endian, the form of a BSON timestamp.
    wall: int64, as in a BSON date.
    key_type: the type byte of the BSON value `key`.
    exact, known: after_exact and before_known.
    after, before: documents. O(size of the documents): they are copied, not walked.
    changed: as `changed_field` returns it; empty: the image has none.
    """
    parts = [
        _head(kind, namespace), version, b"\x12w\0", wall, key_type, b"key\0", key,
        _FLAGS[exact * AFTER_EXACT | known * BEFORE_KNOWN],
    ]  # fmt: skip
    if after is not None:
        parts += b"\x05a\0", after[:_LENGTH], _BINARY, after  # a document begins with its own length
    if before is not None:
        parts += b"\x05b\0", before[:_LENGTH], _BINARY, before
    parts += changed, b"\0"
    content = b"".join(parts)
    return (len(content) + _LENGTH).to_bytes(_LENGTH, "little") + content


def changed_field(paths: Sequence[str]) -> bytes:
    """Return the field of a payload that holds the touched paths."""
    return bson.encode({"p": paths}, codec_options=BSON_OPTIONS)[_LENGTH:-1]


@lru_cache(maxsize=4_096)
def _head(kind: WriteKind, namespace: str) -> bytes:
    """Return the first fields of a payload. Cached, because successive writes concern the same few collections."""
    fields = {"v": FORMAT, "t": "i", "k": kind.value, "ns": namespace}
    return bson.encode(fields, codec_options=BSON_OPTIONS)[_LENGTH:-1] + b"\x12ver\0"
