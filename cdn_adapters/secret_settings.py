"""Secrets of providers: never shown in reprs, errors or logs, and fit for a header field."""

from __future__ import annotations

from pydantic import SecretStr

from quaestor.errors import ConfigurationError


def secret(value: str | SecretStr, what: str) -> SecretStr:
    """Return a secret that only `get_secret_value` shows. Surrounding blanks, as of a file's last line, are cut off.

    what: its name, for people.

    Raises ConfigurationError, without the value, if it is empty or could not stand in a header field.
    """
    plain = (value.get_secret_value() if isinstance(value, SecretStr) else value).strip()
    if not plain:
        raise ConfigurationError(f"{what} is empty; give it from a setting or a file, never from the code")
    if not plain.isascii() or not plain.isprintable():
        raise ConfigurationError(
            f"{what} has characters that no such secret has: it was probably copied with something else"
        )
    return SecretStr(plain)


def without(text: str, secrets: tuple[SecretStr, ...]) -> str:
    """Return a text with these secrets replaced by asterisks."""
    for hidden in secrets:
        text = text.replace(hidden.get_secret_value(), "**********")
    return text
