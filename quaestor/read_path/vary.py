"""Stored variants (RFC 9111, section 4.1): one key per combination of the request fields in `Vary`, or looked up by the handler.

The deciding fields are learnt from answers and remembered per primary key, bounded. Forgetting them costs a miss.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Collection, Sequence

from quaestor.read_path.asked_fields import WHOLES, WITH_CREDENTIALS, all_that_count, counts
from quaestor.read_path.freshness import Headers, values

MAX_NAMES = 8
_MAX_VALUE_BYTES = 1024
_REMEMBERED = 16_384
_LONGEST = 256
"""Longer keys are remembered by a digest: strangers choose the length of a URL."""
_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]{1,64}")
_COMMA = re.compile(rb"(?<![ \t])[ \t]*+,[ \t]*+")
_CODING = re.compile(rb"[0-9a-z\-*]+")


def names(response_headers: Headers, *, covered: Collection[bytes] = frozenset()) -> tuple[bytes, ...] | None:
    """Return the request fields that an answer varies by, sorted; None if it cannot be keyed (`*`, malformed, too many).

    covered: fields that are part of the primary key already; left out.
    """
    varying: set[bytes] = set()
    for value in values(response_headers, b"vary"):
        for piece in value.lower().split(b","):
            name = piece.strip()
            if not name:
                continue
            if name == b"*" or _TOKEN.fullmatch(name) is None:
                return None
            if name not in covered:
                varying.add(name)
    return tuple(sorted(varying)) if len(varying) <= MAX_NAMES else None


def variant_key(
    key: str,
    by: Sequence[bytes],
    request_headers: Sequence[tuple[bytes, bytes]],
    *,
    ignored: Collection[bytes] = frozenset(),
    normalised: bool = False,
) -> str | None:
    """Return the key of the variant that a request selects; the key itself if nothing varies; None if a field is too long.

    by: names of fields; EVERYTHING or WITH_CREDENTIALS among them: all counting fields.
    ignored: fields that these two leave out by choice.
    normalised: values with the same meaning are one variant: blanks around commas, the case of language tags.
    """
    if not by:
        return key
    digest = hashlib.blake2b(digest_size=16)
    for name in by:
        if name in WHOLES:
            for field, value in all_that_count(request_headers, ignored, credentials=name == WITH_CREDENTIALS):
                digest.update(b"%d:%s*%d:%s" % (len(field), field, len(value), value))
            digest.update(name)
            continue
        selected = [value for field, value in request_headers if field == name]
        text = b", ".join(selected)  # joined into one line (RFC 9110, section 5.3)
        if len(text) > _MAX_VALUE_BYTES:
            return None
        if name == b"accept-encoding":
            text = _codings(text)
        elif normalised:
            text = _without_blanks(text)
            text = text.lower() if name == b"accept-language" else text
        present = b"=" if selected else b"-"
        digest.update(b"%d:%s%s%d:%s" % (len(name), name, present, len(text), text))
    return f"{key}#{digest.hexdigest()}"


def _codings(value: bytes) -> bytes:
    """Return Accept-Encoding as a sorted list of codings; with preferences, as it is."""
    text = value.lower().replace(b" ", b"")
    pieces = text.split(b",")
    if all(_CODING.fullmatch(piece) for piece in pieces):
        return b",".join(sorted(set(pieces)))
    return text


def _without_blanks(value: bytes) -> bytes:
    """A list without the blanks around its commas (RFC 9110, section 5.6.1), except within quoted strings."""
    return value if b'"' in value else _COMMA.sub(b",", value.strip(b" \t"))


class Variants:
    """Memory of the fields that the answers under each primary key vary by. Least recently used keys are forgotten.

    ignored: fields that do not count although handlers look them up.
    normalised: see variant_key(). False where handlers' look-ups are noted: a handler may show a field's exact value.
    """

    def __init__(
        self, limit: int = _REMEMBERED, *, ignored: Collection[bytes] = frozenset(), normalised: bool = False
    ) -> None:
        self._limit = limit
        self.ignored = frozenset(ignored)
        self.normalised = normalised
        self._names: OrderedDict[str, tuple[bytes, ...]] = OrderedDict()

    def key(self, primary: str, request_headers: Sequence[tuple[bytes, bytes]]) -> str | None:
        """Return the key under which an answer to this request would be stored, as far as is known."""
        name = _name(primary)
        by = self._names.get(name)
        if by is None:
            return primary
        self._names.move_to_end(name)
        return variant_key(primary, by, request_headers, ignored=self.ignored, normalised=self.normalised)

    def learn(self, primary: str, by: tuple[bytes, ...]) -> tuple[bytes, ...] | None:
        """Note the fields that an answer varies by. Returns the fields to key it by: these, and the earlier answers' fields.

        None if they are too many: then it must not be stored.
        """
        name = _name(primary)
        known = self._names.get(name, ())
        together = {*known, *by}
        if not together.isdisjoint(WHOLES):
            together = {name for name in together if name in WHOLES or not counts(name, self.ignored)}
        joined = tuple(sorted(together))
        if len(joined) > MAX_NAMES:
            return None
        if joined:
            self._names[name] = joined
            self._names.move_to_end(name)
        while len(self._names) > self._limit:
            self._names.popitem(last=False)
        return joined


def _name(primary: str) -> str:
    return primary if len(primary) <= _LONGEST else hashlib.blake2b(primary.encode(), digest_size=16).hexdigest()
