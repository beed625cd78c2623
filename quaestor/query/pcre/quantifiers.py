"""Quantifiers: the repetition of the preceding piece, in the text of both engines, and its effect on the size."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from quaestor.query.pcre.pieces import Options, Piece, repeated_size
from quaestor.query.pcre.reader import Reader

QUANTIFIER: Final = re.compile(r"[*+?]|\{([0-9]+)(?:(,)([0-9]*))?\}")
_LONGEST_REPEAT: Final = 65535
_LARGEST_RE2_REPEAT: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantifier:
    """One quantifier.

    lowest, highest: repetitions; None: no bound.
    mode: its suffix for the engine with modes: lazy, possessive, or nothing.
    linear: RE2 supports it.
    """

    lowest: int
    highest: int | None
    mode: str
    linear: bool

    def of(self, piece: Piece) -> Piece:
        """Return the piece repeated."""
        lowest, highest = self.lowest, self.highest
        suffix = f"{{{lowest},{'' if highest is None else highest}}}"
        return Piece(
            f"(?:{piece.linear}){suffix}",
            f"(?:{piece.full}){suffix}{self.mode}",
            piece.width * lowest if piece.width is not None and lowest == highest else None,
            literal=piece.literal,
            size=repeated_size(piece, lowest, highest),
            work=max(lowest + 1 if highest is None else highest, 1) * piece.work + 1,
            first=piece.first,
            character=piece.character,
            caseless=piece.caseless,
            required=piece.required,
        )


def read_quantifier(reader: Reader, options: Options, *, quantifiable: bool) -> Quantifier | None:
    """Return the next quantifier, if one comes next. Raises MalformedQueryError for a quantifier that PCRE refuses.

    quantifiable: the preceding piece can be repeated.
    """
    match = QUANTIFIER.match(reader.source, reader.at)
    if match is None:
        return None
    if not quantifiable:
        raise reader.malformed("nothing to repeat")
    reader.at = match.end()
    lowest, highest = _bounds(reader, match)
    greedy = not options.ungreedy
    # Fewer fillers are allowed here than between items: no quotation, and only one comment in parentheses, the last.
    while reader.skip_one(extended=options.extended):
        pass
    if reader.take("(?#"):
        reader.until(")", "comment")
    lazy = reader.take("?")
    possessive = not lazy and reader.take("+")
    return Quantifier(
        lowest=lowest,
        highest=highest,
        mode="+" if possessive else "?" if lazy == greedy else "",
        linear=not possessive and max(lowest, highest or 0) <= _LARGEST_RE2_REPEAT,
    )


def _bounds(reader: Reader, match: re.Match[str]) -> tuple[int, int | None]:
    if match[0] in ("*", "+", "?"):
        return (1 if match[0] == "+" else 0), (1 if match[0] == "?" else None)
    lowest = int(match[1])
    highest = lowest if match[2] is None else int(match[3]) if match[3] else None
    if max(lowest, highest or 0) > _LONGEST_REPEAT:
        raise reader.malformed("number too big in {} quantifier")
    if highest is not None and highest < lowest:
        raise reader.malformed("numbers out of order in {} quantifier")
    return lowest, highest
