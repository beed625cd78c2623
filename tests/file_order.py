"""Order of the files for several workers (`--dist loadfile`): the longest first, because the last one would be waited
for alone.

The other files are mixed, because files of one folder wait for the same servers, or all need the processor.
The order is the same in every worker, and from run to run. Without workers nothing is moved.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest

FIRST = (
    "recovery/test_failures.py",
    "recovery/test_service_faults_on_redis.py",
    "recovery/test_service_faults.py",
    "recovery/test_elected_grid.py",
    "continuous/test_every_instant.py",
    "property/test_standing_orders.py",
    "end_to_end/test_real_caches_racing.py",
    "doctor/test_doctor.py",
    "property/matching/test_every_order.py",
    "oracle/test_widened_oracle.py",
    "property/matching/test_index.py",
    "end_to_end/test_demo.py",
    "conformance/test_store_budget.py",
    "docs/test_site.py",
    "dashboard/test_canary.py",
    "recovery/test_service_faults_in_grids.py",
    "oracle/test_expression_oracle.py",
    "dashboard/test_what_if.py",
    "end_to_end/test_hostile_patterns.py",
    "unit/test_linear_expressions.py",
    "inputs/test_random_handlers.py",
    "recovery/test_resizing_on_spark.py",
    "oracle/test_maintained_oracle.py",
    "recovery/test_standing.py",
    "recovery/test_spark_grid.py",
    "end_to_end/test_rest_concurrency.py",
    "inputs/test_read_your_writes.py",
    "end_to_end/test_lifetimes_learned.py",
    "end_to_end/test_real_caches.py",
    "oracle/test_query_oracle.py",
    "end_to_end/test_query_caching_benchmark.py",
)
"""The longest files, roughly in order; files that start Spark are not side by side."""
_PLACE = {name: place for place, name in enumerate(FIRST)}
_TESTS = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    """Order the tests of a worker of pytest-xdist."""
    worker = getattr(config, "workerinput", None)
    if worker is not None:
        number = int(worker["workerid"].removeprefix("gw"))
        config.pluginmanager.register(FileOrder(number, worker["workercount"]), "file-order")


class FileOrder:
    """Order of a worker's tests. Tests of one file stay together, in their order."""

    def __init__(self, worker: int, workers: int) -> None:
        self._worker = worker
        self._workers = workers

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> None:
        """Import a share of the test files before all others.

        Every worker imports all files. In a fresh clone each file is compiled once by this, and not once by each worker.
        """
        folders = [Path(argument) for argument in session.config.args]
        files = sorted(file for folder in folders for file in folder.resolve().rglob("test_*.py"))
        for file in files[self._worker % self._workers :: self._workers]:
            # The collection reports what is wrong with a file, or why it is skipped.
            with suppress(Exception, pytest.skip.Exception):
                import_module(".".join(file.relative_to(_TESTS.parent).with_suffix("").parts))

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Order them by their files."""
        items.sort(key=lambda item: place(item.path))


def place(path: Path) -> tuple[int, str]:
    """Place of a test file, to be sorted by."""
    name = path.relative_to(_TESTS).as_posix() if path.is_relative_to(_TESTS) else path.as_posix()
    return _PLACE.get(name, len(FIRST)), hashlib.blake2b(name.encode(), digest_size=8).hexdigest()
