"""Bearer token of the admin API (RFC 6750), and a limit on how often a wrong one may be sent."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path

from quaestor.clock import Clock
from quaestor.errors import ConfigurationError

VARIABLE = "QUAESTOR_ADMIN_TOKEN"
MIN_CHARS = 24
"""Fewest characters of a token: a patient attacker can guess shorter ones."""
FAILURES = 10
WINDOW_MS = 60_000
_REMEMBERED = 4096
_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
_MAKE_ONE = "make one: python -c 'import secrets; print(secrets.token_urlsafe(32))'"


class AdminToken:
    """Token of the admin API, checked to be long enough. Keeps only its digest."""

    def __init__(self, text: str, *, source: str = "the token") -> None:
        """Raises ConfigurationError, without showing the token, if it is short or no token68 (RFC 9110, section 11.2)."""
        if len(text) < MIN_CHARS:
            raise ConfigurationError(
                f"{source} has {len(text)} characters, at least {MIN_CHARS} are needed; {_MAKE_ONE}"
            )
        if _TOKEN.fullmatch(text) is None or len(set(text)) < 8:
            raise ConfigurationError(f"{source} is not a random token of letters, digits and -._~+/; {_MAKE_ONE}")
        self._digest = _digest(text.encode("ascii"))

    @classmethod
    def load(cls, file: Path | None = None, environment: Mapping[str, str] | None = None) -> AdminToken:
        """Token from a file (its only line), or else from QUAESTOR_ADMIN_TOKEN. Raises ConfigurationError."""
        return cls(read_token(file, environment), source=f"the token in {file}" if file else VARIABLE)

    def allows(self, authorization: bytes) -> bool:
        """Whether the header is `Bearer <token>`. The check takes as long for a wrong token as for the right one."""
        scheme, _, given = authorization.partition(b" ")
        same = hmac.compare_digest(_digest(given.strip()), self._digest)
        return scheme.lower() == b"bearer" and same


def read_token(file: Path | None = None, environment: Mapping[str, str] | None = None) -> str:
    """The token's text, for clients. Raises ConfigurationError if there is none."""
    if file is not None:
        try:
            return file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"the token file {file} cannot be read: {error}; {_MAKE_ONE} > {file}") from error
    environment = os.environ if environment is None else environment
    if not environment.get(VARIABLE):
        raise ConfigurationError(f"no admin token: pass --token-file, or set {VARIABLE}")
    return environment[VARIABLE].strip()


class Failures:
    """Count of wrong tokens by client, with a limit.

    At most FAILURES wrong tokens per client and WINDOW_MS are looked into; memory is bounded. The limit keeps logs short;
    protection from guessers comes from the length of the token (MIN_CHARS)."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counts: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def wait_ms(self, client: str) -> int:
        """Time that a client without the right token has to wait; 0 if the client may try again."""
        since_ms, count = self._counts.get(client, (0, 0))
        left_ms = since_ms + WINDOW_MS - self._clock()
        return left_ms if count >= FAILURES and left_ms > 0 else 0

    def note(self, client: str) -> None:
        """Count a wrong token."""
        now_ms = self._clock()
        since_ms, count = self._counts.pop(client, (now_ms, 0))
        if since_ms + WINDOW_MS <= now_ms:
            since_ms, count = now_ms, 0
        self._counts[client] = (since_ms, count + 1)
        while len(self._counts) > _REMEMBERED:
            self._counts.popitem(last=False)


def _digest(given: bytes) -> bytes:
    return hashlib.sha256(given).digest()
