"""Text for a terminal, made safe: foreign text in it cannot control the terminal."""

from __future__ import annotations


def printable(text: str, *, keep: str = "\n") -> str:
    """Return a text in which unprintable characters are written as escapes: `\\x1b`.

    keep: characters that stay as they are.
    """
    return "".join(
        character if character in keep or character.isprintable() else _escaped(character) for character in text
    )


def line(text: str) -> str:
    """Return a text that takes only one line of the terminal."""
    return printable(text, keep="")


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
