"""Text for a terminal, in which nothing that others wrote acts on the terminal."""

from __future__ import annotations


def printable(text: str, *, keep: str = "\n") -> str:
    """Return a text whose characters without a picture are written as escapes: `\\x1b`.

    keep: characters that stay as they are.
    """
    return "".join(
        character if character in keep or character.isprintable() else _escaped(character) for character in text
    )


def line(text: str) -> str:
    """Return a text that stays one line of the terminal."""
    return printable(text, keep="")


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
