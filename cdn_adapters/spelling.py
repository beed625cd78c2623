"""Spelling of tags and URLs in purge requests and response headers. Pure."""

from __future__ import annotations

from urllib.parse import quote, urlsplit

from quaestor.errors import CdnError

_SAFE_IN_TAGS = "!#$&'*+-./:;<=>?@^_`|~()[]"
"""Characters that stay as they are, besides letters and digits. Blanks and commas separate tags."""


def header_tag(tag: str) -> str:
    """Spell a tag without blanks, commas and bytes that a header cannot carry; the same in every place.

    Percent-encoded UTF-8. Two different tags are spelled differently, because a percent sign is encoded too.
    """
    return quote(tag, safe=_SAFE_IN_TAGS)


def absolute_url(url: str) -> str:
    """Return the URL, unchanged. Raises CdnError, not retryable, for a URL that is not absolute or not printable ASCII."""
    parts = urlsplit(url)
    if not parts.netloc or not url.isascii() or any(c <= " " for c in url):
        raise CdnError(f"{url!r} cannot be purged: it is not an absolute URL in ASCII", retryable=False)
    return url
