"""Order of the files for several workers (`--dist loadfile`): the longest first, because the last one would be waited
for alone.

The other files are mixed, because files of one folder wait for the same servers, or all need the processor.
The order is the same in every worker, and from run to run. Without workers nothing is moved.
"""

from __future__ import annotations

import hashlib
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
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(FileOrder(), "file-order")


class FileOrder:
    """Order of a worker's tests. Tests of one file stay together, in their order."""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Order them by their files."""
        items.sort(key=lambda item: place(item.path))


def place(path: Path) -> tuple[int, str]:
    """Place of a test file, to be sorted by."""
    name = path.relative_to(_TESTS).as_posix() if path.is_relative_to(_TESTS) else path.as_posix()
    return _PLACE.get(name, len(FIRST)), hashlib.blake2b(name.encode(), digest_size=8).hexdigest()
