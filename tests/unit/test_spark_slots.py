"""Slots of a cluster manager: the grid's request, and its report of the granted ones."""

from __future__ import annotations

import pytest

from quaestor.errors import ConfigurationError
from quaestor.invalidation.grid.spark.configuration import configuration, requested
from quaestor.invalidation.grid.spark.jobs import cause
from quaestor.invalidation.grid.spark.slots import Shortage, too_few
from quaestor.model import GridShape

GIB = 2**30


@pytest.mark.parametrize(
    ("given", "cores"),
    [({}, "7"), ({"spark.executor.cores": "2"}, "8"), ({"spark.cores.max": "30"}, "30")],
    ids=["as many as tasks", "whole executors", "more, if configured"],
)
def test_of_a_standalone_cluster_no_more_is_taken_than_is_needed(given: dict[str, str], cores: str) -> None:
    request = requested("spark://head:7077", 7, given)
    assert (request["spark.cores.max"], request["spark.executor.memory"]) == (cores, "512m")


@pytest.mark.parametrize("master", ["yarn", "k8s://https://head:6443"])
def test_of_yarn_and_kubernetes_containers_are_asked_for_that_hold_what_cells_may_hold(master: str) -> None:
    request = requested(master, 7, {"spark.executor.cores": "2"}, task_bytes=GIB)
    assert (request["spark.executor.instances"], request["spark.executor.cores"]) == ("4", "2")
    assert int(request["spark.executor.memoryOverhead"].removesuffix("m")) >= 2 * 1024
    assert configuration(master)["spark.dynamicAllocation.enabled"] == "false"


@pytest.mark.parametrize("master", ["local[9,8]", "local-cluster[2,5,1024]"])
def test_nothing_is_asked_of_a_master_that_is_no_cluster_manager(master: str) -> None:
    assert requested(master, 7, {"spark.executor.memory": "1g"}) == {}


@pytest.mark.parametrize(
    ("master", "given", "message"),
    [
        ("spark://h:1", {"spark.cores.max": "3"}, "--conf spark.cores.max=3 asks for 3 slots, the grid needs 7"),
        ("spark://h:1", {"spark.cores.max": "7", "spark.executor.cores": "4"}, "asks for 4 slots"),
        ("yarn", {"spark.executor.instances": "6"}, "spark.executor.instances=6 asks for 6 slots"),
        ("yarn", {"spark.executor.instances": "many"}, "--conf spark.executor.instances=many is not a whole number"),
        ("spark://h:1", {"spark.executor.cores": "0"}, "spark.executor.cores=0 is not a whole number above 0"),
    ],
)
def test_asking_for_too_little_is_refused_before_anything_starts(
    master: str, given: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        requested(master, 7, given)


def test_a_cluster_on_loopback_is_talked_to_on_loopback_only() -> None:
    for master, here in (
        ("spark://127.0.0.1:7077", True),
        ("spark://localhost:7077,localhost:7078", True),
        ("spark://head:7077", False),
        ("spark://localhost.example:7077", False),
        ("local[9,8]", True),
    ):
        assert ("spark.driver.host" in configuration(master)) == here


def test_the_refusal_says_what_was_granted_what_is_needed_and_what_to_do() -> None:
    sentence = too_few("spark://h:1", GridShape(query_partitions=2, write_partitions=3), granted=4, within_s=120)
    assert "spark://h:1 granted 4 slots within 120 s, but 6 cells, 2 stages and ingest need 9: add workers" in sentence


def test_a_shortage_is_reported_once_after_a_while_and_so_is_its_end() -> None:
    shortage = Shortage(needed=5, reported_after_s=20, given_up_after_s=60)
    seen = [
        shortage.seen(granted, now_s=now_s)
        for granted, now_s in ((5, 0), (3, 1), (5, 10), (3, 11), (3, 30), (3, 31), (4, 90), (5, 91), (5, 92))
    ]
    assert seen == [None, None, None, None, None, "short", None, "enough", None]


def test_a_grid_without_any_slot_is_given_up_but_not_before_it_had_one() -> None:
    shortage = Shortage(needed=5, reported_after_s=20, given_up_after_s=60)
    before = [shortage.seen(0, now_s=now_s) for now_s in (0, 30, 500)]
    assert before == [None, "short", None]
    after = [
        shortage.seen(granted, now_s=now_s) for granted, now_s in ((5, 501), (0, 600), (1, 659), (0, 660), (0, 720))
    ]
    assert after == ["enough", None, "short", None, "none"]


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (
            'java.io.IOException: Cannot run program "/x/python": error=2, No such file or directory\n\tat java.base/java.lang.A'
            "\nCaused by: java.io.IOException: error=2, No such file or directory\n\t... 18 more\n",
            'java.io.IOException: Cannot run program "/x/python": error=2, No such file or directory',
        ),
        (
            "org.apache.spark.SparkException: \nError from python worker:\n  /x/python: No module named 'quaestor'\n"
            "PYTHONPATH was:\n  /y.zip\norg.apache.spark.SparkException: EOFException occurred\n\tat org.B",
            "/x/python: No module named 'quaestor'",
        ),
        (
            'org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n  File "a.py", line 1, in f\n'
            "    raise ValueError('here')\nValueError: here\n\n\tat org.C",
            "ValueError: here",
        ),
        ("ExecutorLostFailure (executor 1 exited)", "ExecutorLostFailure (executor 1 exited)"),
        ("", ""),
    ],
    ids=["no interpreter", "no package", "an exception", "no stack", "nothing"],
)
def test_of_a_failed_tasks_report_the_line_that_says_why_is_shown(message: str, said: str) -> None:
    assert cause(message) == said
