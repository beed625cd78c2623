"""Real servers shared by the whole run. Each test takes a database, prefix or port of its own on them."""

from __future__ import annotations

import gc
import sys
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import none

from benchmarks.setups.browsers.browser import Browser, Kind
from benchmarks.setups.browsers.chromium import CHROMIUM
from benchmarks.setups.browsers.firefox import FIREFOX
from benchmarks.setups.browsers.webkit import WEBKIT
from benchmarks.setups.faults.proxy import Links
from quaestor.redis import clients
from quaestor.testing import plugin, servers
from tests import ended_by_force, failures_at_once, file_order, long_tests, whole_run
from tests.redis_cluster import redis_cluster
from tests.support import PATIENCE_S

# A property is judged by what is found, not by how long a machine that stands still for a moment takes to draw examples.
settings.register_profile(
    "unhurried",
    deadline=None,
    suppress_health_check=[*settings().suppress_health_check, HealthCheck.too_slow],
)
settings.load_profile("unhurried")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare what these tests have of their own."""
    ended_by_force.pytest_addoption(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Begin the watches over a run."""
    plugin.pytest_configure(config)
    ended_by_force.pytest_configure(config)
    file_order.pytest_configure(config)
    long_tests.pytest_configure(config)
    failures_at_once.pytest_configure(config)
    whole_run.pytest_configure(config)


@given(none())
@settings(database=None, max_examples=1)
def first_property(_: None) -> None:
    """Make Hypothesis create and register its source of randomness, by a property of nothing.

    Hypothesis refuses a source to which the garbage collector sees no reference, and the collector sees none of frozen
    objects.
    """


def pytest_collection_finish() -> None:
    """Freeze the objects of all modules, which last as long as the run: no garbage collection visits them again."""
    first_property()
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def nothing_left_open() -> Iterator[None]:
    """Attribute an unclosed resource to the module that left it open."""
    yield
    # Python keeps the last failure for debuggers, with all that its frames hold.
    for name in ("last_exc", "last_type", "last_value", "last_traceback"):
        sys.__dict__.pop(name, None)
    gc.collect()


@pytest.fixture(scope="session")
def mongo_url() -> Iterator[str]:
    """A replica set of one real mongod.

    Its journal is flushed often, because most tests wait for that several times.
    """
    with servers.mongo_url(journal_ms=10) as url:
        yield url


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """A real Valkey."""
    with servers.redis_url() as url:
        yield url


@pytest.fixture(scope="session")
def redis_cluster_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real Valkey Cluster of three primaries."""
    with redis_cluster(tmp_path_factory.mktemp("valkey-cluster")) as cluster:
        yield cluster.url


@pytest.fixture
def patient_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    """Apps wait for a Redis that stands still for a second: that they give it up is tested where it is the subject."""
    monkeypatch.setattr(clients, "shared_client", partial(clients.shared_client, timeout_s=PATIENCE_S))


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[servers.Server]:
    """A Valkey of this test's own, which it may fill or kill; nothing is kept on disk."""
    server = servers.redis_server(tmp_path, persistent=False)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def links() -> Iterator[Links]:
    """Links of this test's own to any server, which can fail."""
    links = Links()
    yield links
    links.close()


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(
            kind, id=kind.name,
            marks=[
                pytest.mark.slow, pytest.mark.browser,
                pytest.mark.skipif(kind.path is None, reason=f"no {kind.name} here: `make {kind.name}` installs it"),
            ],
        )
        for kind in (CHROMIUM, FIREFOX, WEBKIT)
    ],
)  # fmt: skip
def kind_of_browser(request: pytest.FixtureRequest) -> Kind:
    """Each browser of this machine in turn. Tests with this fixture are slow, and run by `make test-browsers`."""
    kind: Kind = request.param
    return kind


@pytest.fixture(scope="module")
def browser(kind_of_browser: Kind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One of each kind in turn, which a module's tests share."""
    with kind_of_browser.running(tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.fixture(params=["server", "cluster"])
def shared_url(request: pytest.FixtureRequest) -> str:
    """One server, then a cluster."""
    return str(request.getfixturevalue("redis_url" if request.param == "server" else "redis_cluster_url"))


@pytest.fixture(autouse=True)
def clock_parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Constants are searched for parts of the present time in tests with this marker only, as the settings say."""
    if request.node.get_closest_marker("clock_parts") is not None:
        monkeypatch.delenv("QUAESTOR_CLOCK_PARTS")


@pytest.fixture
def prefix() -> str:
    """A name of this test's own, for key prefixes, databases and tenants."""
    return f"t{uuid.uuid4().hex[:10]}"


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slow families may take an hour on a busy machine, unless they say otherwise themselves."""
    for item in items:
        if item.get_closest_marker("slow") is not None and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(3_600))
