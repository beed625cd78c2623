"""Order of the middlewares: those inside the cache do not run on a hit."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from quaestor.doctor.diagnosis import Diagnosis, ok, warn

SUBJECT: Final = "middlewares"
_KINDS: Final = (
    ("authentication", r"auth|jwt|oauth|oidc|login"),
    ("sessions", r"session"),
    ("CSRF tokens", r"csrf|xsrf"),
    ("nonces and security fields", r"csp|contentsecurity|secure|nonce|helmet"),
    (
        "lists of addresses and hosts",
        r"trustedhost|allowedhost|allowlist|whitelist|blocklist|blacklist|ipfilter|firewall",
    ),
    ("rate limits", r"ratelimit|limiter|slowapi|throttl"),
)
"""By what is found in the name of a class or function, in lower case."""
_FRAMEWORK: Final = ("starlette.middleware.errors", "starlette.middleware.exceptions", "fastapi.middleware")


def examined(layers: Sequence[Any]) -> Iterator[Diagnosis]:
    """The order of the middlewares of one app.

    layers: what lies inside the cache, from the outside in.
    """
    inside = [name for layer in layers for name in _names(layer)]
    if not inside:
        yield ok(SUBJECT, "none stands inside the cache")
        return
    for name in inside:
        kind = kind_of(name)
        if kind is None:
            yield ok(SUBJECT, f"{name} stands inside the cache: it runs when a handler does, not on a hit")
        else:
            yield warn(
                SUBJECT,
                f"{name} ({kind}) stands inside the cache and does not run on a hit: let it stand around the cache, as what is "
                "added later does",
                "app.add_middleware(QuaestorMiddleware, quaestor=quaestor)  # first, and below it:",
                f"app.add_middleware({name}, ...)",
            )


def kind_of(name: str) -> str | None:
    """Kind of a middleware that has to run for every request, as far as its name tells; None: another."""
    plain = name.lower().replace("_", "")
    return next((kind for kind, pattern in _KINDS if re.search(pattern, plain)), None)


def _names(layer: Any) -> Iterator[str]:
    """The names of the middlewares that one layer is: itself, or what a framework has been given as a list."""
    listed = getattr(layer, "middleware", None)
    if isinstance(listed, list):  # Litestar's; the app itself is none
        yield from (_name(one) for one in listed)
        return
    module = type(layer).__module__
    if hasattr(layer, "routes") or not hasattr(layer, "app") or module.startswith(_FRAMEWORK):
        return
    dispatch = getattr(layer, "dispatch_func", None)  # Starlette's BaseHTTPMiddleware
    own = getattr(dispatch, "__self__", None) is layer or dispatch is None
    yield type(layer).__name__ if own else _name(dispatch)


def _name(one: Any) -> str:
    one = getattr(one, "middleware", one)  # Litestar's DefineMiddleware
    return str(getattr(one, "__name__", type(one).__name__))
