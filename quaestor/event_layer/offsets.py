"""Offsets: `<milliseconds>-<sequence>@<epoch>`, zero-padded, so that comparing strings compares positions.

The milliseconds are when the entry was appended, by the event layer's clock. The epoch names the layer's
data until they are lost: an offset of another epoch cannot be read from, however it was kept. "0" is before everything, in each.
"""

from __future__ import annotations

START = "0"
LAST_SEQUENCE = 2**64 - 1
"""No entry has it: an offset with it is a moment, not an entry."""


def offset(at_ms: int, sequence: int, epoch: str) -> str:
    return f"{at_ms:015d}-{sequence:020d}@{epoch}"


def of_digits(at_ms: str, sequence: str, epoch: str) -> str:
    """The offset of numbers that are written in digits already: no entry comes by without one."""
    return f"{at_ms.zfill(15)}-{sequence.zfill(20)}@{epoch}"


def just_before(at_ms: int, epoch: str) -> str:
    """The offset after which comes exactly what was appended at at_ms or later."""
    return offset(max(at_ms - 1, 0), LAST_SEQUENCE, epoch)


def position(text: str) -> tuple[int, int]:
    """(milliseconds, sequence). Raises ValueError if it is not an offset."""
    if text == START:
        return 0, 0
    at_ms, _, rest = text.partition("-")
    return int(at_ms), int(rest.partition("@")[0])


def is_entry(text: str) -> bool:
    """Whether it is the place of an entry, not a moment or the beginning."""
    return text != START and position(text)[1] != LAST_SEQUENCE


def appended_at_ms(text: str) -> int:
    """The time at which the entry at this offset was appended, by the event layer's clock."""
    return position(text)[0]


def epoch_of(text: str) -> str | None:
    """The data epoch it belongs to; None for START, which belongs to all."""
    return text.partition("@")[2] or None
