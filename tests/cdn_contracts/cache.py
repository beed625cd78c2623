"""The cache of a hosted CDN: responses it keeps, by the documented rules of its tag field."""

from __future__ import annotations

from collections.abc import Callable, Iterable


class Cache:
    """URLs and their tags.

    field: name of the header field, in lower case.
    separator: between its tags.
    max_bytes: of the field's value; what is beyond is not kept.
    max_tags: of an object; further ones are not kept.
    fold_case: whether tags are compared without regard to case.
    cache_key: of a URL; two URLs of one key are one object.
    """

    def __init__(
        self,
        field: str,
        separator: str,
        *,
        max_bytes: int = 16_384,
        max_tags: int = 1_000_000,
        fold_case: bool = False,
        cache_key: Callable[[str], str] = lambda url: url,
    ) -> None:
        self.field = field
        self._separator = separator
        self._max_bytes = max_bytes
        self._max_tags = max_tags
        self._fold_case = fold_case
        self._cache_key = cache_key
        self._tags: dict[str, frozenset[str]] = {}

    def store(self, url: str, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Keep a response."""
        value = self._separator.join(
            value.decode("ascii") for name, value in headers if name.decode("ascii").lower() == self.field
        )
        tags = [tag.strip() for tag in value[: self._max_bytes].split(self._separator)]
        self._tags[self._cache_key(url)] = frozenset(self._folded(tag) for tag in tags[: self._max_tags] if tag)

    def purge_tags(self, tags: Iterable[str]) -> None:
        wanted = {self._folded(tag) for tag in tags}
        self._tags = {url: kept for url, kept in self._tags.items() if not kept & wanted}

    def purge_urls(self, urls: Iterable[str]) -> None:
        for url in urls:
            self._tags.pop(self._cache_key(url), None)

    def purge_where(self, gone: Callable[[str], bool]) -> None:
        """Of the cache keys."""
        self._tags = {url: kept for url, kept in self._tags.items() if not gone(url)}

    def __contains__(self, url: str) -> bool:
        return self._cache_key(url) in self._tags

    def _folded(self, tag: str) -> str:
        return tag.lower() if self._fold_case else tag
