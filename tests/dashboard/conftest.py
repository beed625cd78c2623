"""The page of a module's own site, opened in each browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.setups.browsers.browser import Browser
from tests.dashboard.page import Page
from tests.dashboard.site import Site


@pytest.fixture
def page(browser: Browser, shop: Site) -> Iterator[Page]:
    """A page without a token, closed at the end."""
    opened = Page(browser, shop.url)
    yield opened
    opened.close()
