"""Background work: the supervisor owns every task and thread that no code waits for, and the documents explain each
service.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.sources import ROOT, SOURCES
from tests.recovery.struck_services import covered

STARTERS = {"create_task", "ensure_future", "Thread", "Timer", "run_in_executor", "start_soon"}

WAITED_FOR = {
    "cdn_adapters/acknowledgements.py": "a failure reaches those who wait for the acknowledgement",
    "cdn_adapters/batching.py": "a failure reaches those who wait for the purge; the next purge begins anew",
    "cdn_adapters/own_purges.py": "a failure reaches those who put the purges in",
    "middleware/held_answer.py": "the request waits for it",
    "middleware/lifespan.py": "it raises only what the stop raises, and that is counted there",
    "middleware/verification.py": "the verification waits for the handler's run",
    "quaestor/channels/brokers/watch.py": "a failed look is repeated; the clients wait with a time limit",
    "quaestor/channels/feeds/service.py": "a task group raises what its tasks raise",
    "quaestor/channels/hosting.py": "a task group raises what its tasks raise",
    "quaestor/cli/channel_server.py": "a task group raises what its tasks raise",
    "quaestor/client/": "runs in programs without a Quaestor; a failure reaches those who wait for the sketch",
    "quaestor/continuous/executors/time_limit.py": "the query waits for its end; an interruption raises nothing",
    "quaestor/continuous/service.py": "a task group raises what its tasks raise",
    "quaestor/channels/procedure_service.py": "a task group raises what its tasks raise",
    "quaestor/channels/service.py": "a task group raises what its tasks raise",
    "quaestor/dashboard/leaving.py": "the request waits for it",
    "quaestor/dashboard/simulating.py": "waits in a child process for the end of its parent",
    "quaestor/doctor/hosted_app.py": "the command waits for it",
    "quaestor/invalidation/effects/purge_probe.py": "a task group raises what its tasks raise",
    "quaestor/invalidation/effects/purging.py": "a task group raises what its tasks raise",
    "quaestor/invalidation/effects/own_writes.py": "counts its only failure; asked again at the next request",
    "quaestor/live/pages/following.py": "the request waits for it",
    "quaestor/live/websocket/catching_up.py": "a failure reaches those who wait for the answer",
    "quaestor/live/websocket/connection.py": "a task group raises what its tasks raise",
    "quaestor/live/websocket/endpoint.py": "a task group raises what its tasks raise",
    "quaestor/live/websocket/rights_watch.py": "a task group raises what its tasks raise",
    "quaestor/live/results/streams.py": "a task group raises what its tasks raise",
    "quaestor/observability/metrics_server.py": "the server answers for each request's failure by itself",
    "quaestor/proxy/": "the request waits for it",
    "quaestor/redis/round_trips.py": "a failure reaches those who wait for the reply",
    "quaestor/rest/assembled.py": "a failure reaches those who wait for the list",
    "quaestor/tables/pins.py": "a failing storage leaves the snapshots to the grace period of maintenance",
    "quaestor/runtime/channels.py": "a task group raises what its tasks raise",
    "quaestor/runtime/supervision/supervisor.py": "the supervisor",
}
"""Files that start tasks or threads of their own, and why nobody misses what those raise."""
NO_PART_OF_AN_APPLICATION = ("quaestor/demo/", "quaestor/testing/")


def starts(source: Path) -> Iterator[int]:
    """Lines at which a file starts a task or a thread."""
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in STARTERS:
                yield node.lineno


def test_every_task_and_thread_that_nobody_waits_for_is_supervised() -> None:
    """The supervisor counts, logs and restarts a service that raises; a bare task or thread would die without a trace."""
    places = {f"{source.relative_to(ROOT)}:{line}" for source in SOURCES for line in starts(source)}
    assert [place for place in sorted(places) if not place.startswith((*WAITED_FOR, *NO_PART_OF_AN_APPLICATION))] == []
    assert [name for name in WAITED_FOR if not any(place.startswith(name) for place in places)] == []


def kept() -> set[str]:
    """Names of the services that are restarted, as far as they are constant."""
    started = re.compile(r'\.(?:keep|thread)\(\s*f?"(?P<name>[a-z-]+)|_keep\("(?P<kept>[a-z-]+)"')
    loops = re.compile(r'"(?P<name>[a-z]+)": self\._run_|loops\["(?P<kept>[a-z]+)"\]')
    return {
        match["name"] or match["kept"]
        for source in SOURCES
        for pattern in (started, loops)
        for match in pattern.finditer(source.read_text())
    }


def test_faults_strike_every_service() -> None:
    """The table of struck services names each service that is restarted, and no other one."""
    assert {"catalog", "reset", "sender", "purges-", "ingest", "journal", "task-"} <= kept()
    assert kept() ^ covered() == set()


def test_the_documents_explain_every_service() -> None:
    """By its name, with what happens while it is down."""
    table = (ROOT / "docs/failure_modes.md").read_text().partition("| service | work |")[2].partition("\n\n")[0]
    explained = {re.sub(r"<\w+>", "", name) for row in table.splitlines() for name in re.findall(r"`([a-z<>-]+)`", row)}
    started = re.compile(r'\.(?:keep|thread|errands|service)\(\s*f?"(?P<name>[a-z-]+)|_keep\("(?P<kept>[a-z-]+)"')
    names = {match["name"] or match["kept"] for source in SOURCES for match in started.finditer(source.read_text())} | {
        "ingest",
        "cell",
        "stage",
        "journal",
    }
    assert {"catalog", "reset", "sender", "purges-"} <= names
    assert sorted(names - explained) == []
