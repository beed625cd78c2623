"""Each background service meets an exception at each of its awaits or functions: the fault is counted, the service
restarted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.recovery.struck_services import EMBEDDED, Struck
from tests.recovery.struck_world import alive_threads, goes_on

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.timeout(200),
    pytest.mark.filterwarnings("ignore:coroutine '.*' was never awaited:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def no_threads_before() -> None:
    assert alive_threads() == []


def in_folder(struck: Struck, folder: Path) -> Struck:
    settings: Mapping[str, Any] = {
        name: value.format(folder=folder) if isinstance(value, str) else value
        for name, value in struck.settings.items()
    }
    return replace(struck, settings=settings)


QUICK = ("invalidations", "notifications", "ingest", "cell")


@pytest.mark.parametrize(
    "service", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in EMBEDDED]
)
async def test_a_service_that_is_struck_everywhere_goes_on(
    mongo_url: str, prefix: str, service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every fault is counted, answers follow every change meanwhile, the cache serves again afterwards, the stop returns."""
    await goes_on(mongo_url, prefix, service, in_folder(EMBEDDED[service], tmp_path), monkeypatch)
