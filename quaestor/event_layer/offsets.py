"""Offsets: `<milliseconds>-<sequence>@<epoch>`, zero-padded, so that strings compare like positions.

The milliseconds are the time of the append, by the event layer's clock. The epoch names the layer's data until they are
lost. An offset of another epoch cannot be read from, wherever it was kept. "0" lies before everything, in each epoch.
"""

from __future__ import annotations

START = "0"
LAST_SEQUENCE = 2**64 - 1
"""Sequence that no entry has: an offset with it is a time, not an entry."""


def offset(at_ms: int, sequence: int, epoch: str) -> str:
    return f"{at_ms:015d}-{sequence:020d}@{epoch}"


def of_digits(at_ms: str, sequence: str, epoch: str) -> str:
    """Return the offset of numbers that are given as digits: every entry read passes here."""
    return f"{at_ms.zfill(15)}-{sequence.zfill(20)}@{epoch}"


def just_before(at_ms: int, epoch: str) -> str:
    """Return the offset just before all entries appended at at_ms or later."""
    return offset(max(at_ms - 1, 0), LAST_SEQUENCE, epoch)


def position(text: str) -> tuple[int, int]:
    """Return (milliseconds, sequence). Raises ValueError if the text is not an offset."""
    if text == START:
        return 0, 0
    at_ms, _, rest = text.partition("-")
    return int(at_ms), int(rest.partition("@")[0])


def is_entry(text: str) -> bool:
    """Whether the offset is that of an entry, not a time or the beginning."""
    return text != START and position(text)[1] != LAST_SEQUENCE


def appended_at_ms(text: str) -> int:
    """Return the time of the append of the entry at this offset, by the event layer's clock."""
    return position(text)[0]


def epoch_of(text: str) -> str | None:
    """Return the data epoch of an offset; None for START, which belongs to all epochs."""
    return text.partition("@")[2] or None
