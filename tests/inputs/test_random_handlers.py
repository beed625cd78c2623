"""Random handlers that read random inputs, bare and cached: no answer that the bare handler could not have given.

The inputs that capture must notice are tried without verification.

- Fields read in every way, cookies, parameters, addresses.
- Entries of the scope, security schemes, the clock in 23 forms, captured and uncaptured clients.

Inputs that the cache cannot see are tried with verification. A property that cannot fail shows nothing: with a part of
the product taken out, each is seen to fail.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis.strategies import SearchStrategy

from quaestor.capture import clock_values
from quaestor.capture.recorder import Recorder
from quaestor.invalidation.registry import validity
from quaestor.invalidation.registry.notification_handler import NotificationHandler
from quaestor.model import Invalidated
from quaestor.read_path import asked_fields
from tests.end_to_end.test_distributed import HEARTBEAT_MS, grid
from tests.inputs.random_handlers import Jump, Story, Write, pointed_stories, stories
from tests.inputs.random_inputs import ASKED, SEEN
from tests.inputs.random_stage import Stage, stage
from tests.inputs.random_unseen import UnseenWorld
from tests.inputs.random_world import DAY_MS, World, WrongAnswerError

# Threads of the product draw from the process' generator while Hypothesis draws a story from its own.
pytestmark = pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies")

ALL = tuple(SEEN)
WITHOUT_CREDENTIALS = tuple(
    name for name in SEEN if name.startswith(("field: get", "field: raw", "parameter", "path", "clock", "setting"))
)
"""Of requests that carry some nothing is verified."""


def explore(played: Stage, examples: int, ways: tuple[str, ...] = ALL, *, shrinks: bool = True, **options: Any) -> None:
    """Play so many random stories.

    shrinks: what fails is made smaller. options: see `stories`.
    """

    @settings(max_examples=examples, phases=[phase for phase in Phase if shrinks or phase is not Phase.shrink])
    @given(stories(ways, **options))
    def answers_are_right(story: Story) -> None:
        played.play(story)

    answers_are_right()
    print(dict(played.world.tally.most_common()))


def first_failure(played: Stage, examples: int, random: SearchStrategy[Story]) -> AssertionError | None:
    """Return the failure of the first failing story among so many random ones."""
    failed: list[AssertionError] = []

    @settings(max_examples=examples, phases=[Phase.generate], database=None)
    @given(random)
    def answers_are_right(story: Story) -> None:
        if not failed:
            try:
                played.play(story)
            except AssertionError as error:
                failed.append(error)

    answers_are_right()
    return failed[0] if failed else None


def enough(played: Stage) -> None:
    """Check that enough answers came from the cache: a property shows nothing if the handler always answers."""
    tally = played.world.tally
    assert tally["hit"] > tally.total() / 50, tally
    assert tally["stored"] > tally.total() / 200, tally


def embedded(mongo_url: str, prefix: str, directory: Path, examples: int) -> None:
    with stage(World, mongo_url, prefix, directory) as played:
        explore(played, examples)
        enough(played)


def test_answers_are_the_bare_handlers(mongo_url: str, prefix: str, tmp_path: Path) -> None:
    embedded(mongo_url, prefix, tmp_path, 40)


def test_answers_are_the_bare_handlers_on_the_grid(mongo_url: str, redis_url: str, prefix: str, tmp_path: Path) -> None:
    """Ingest, four cells and a Valkey; time is not moved, for they have clocks of their own."""
    shared = {"redis_url": redis_url, "deployment": prefix, "heartbeat_ms": HEARTBEAT_MS}
    with (
        grid(mongo_url, redis_url, prefix),
        stage(World, mongo_url, f"{prefix}a", tmp_path, moves=False, **shared) as played,
    ):
        explore(played, 12, jumps=False)
        enough(played)


@pytest.mark.parametrize("probation_answers", [0, 3])
def test_unseen_inputs_are_found(mongo_url: str, prefix: str, tmp_path: Path, probation_answers: int) -> None:
    unseen(mongo_url, prefix, tmp_path, 5, probation_answers)


@pytest.mark.slow
def test_answers_are_the_bare_handlers_in_many_stories(mongo_url: str, prefix: str, tmp_path: Path) -> None:
    embedded(mongo_url, prefix, tmp_path, 400)


@pytest.mark.slow
@pytest.mark.parametrize("probation_answers", [0, 3])
def test_unseen_inputs_are_found_in_many_stories(
    mongo_url: str, prefix: str, tmp_path: Path, probation_answers: int
) -> None:
    unseen(mongo_url, prefix, tmp_path, 80, probation_answers)


def unseen(mongo_url: str, prefix: str, directory: Path, examples: int, probation_answers: int) -> None:
    """Once probation is over (0), and on it."""
    probation = {"probation_answers": probation_answers, "probation_ttl_ms": 600}
    with (
        pytest.MonkeyPatch.context() as patched,
        stage(UnseenWorld, mongo_url, prefix, directory, **probation) as played,
    ):
        # Dead registrations are remembered for longer than any request lasts, but here time is moved by days.
        patched.setattr(validity, "TOMBSTONE_MS", 400 * DAY_MS)
        world = played.world
        assert isinstance(world, UnseenWorld)
        # In a few random stories, every wrong answer may be over before it is compared: nothing shows then, and more are played.
        for _ in range(8):
            explore(played, examples, ways=WITHOUT_CREDENTIALS, shrinks=False, unseen=True)
            if world.found:
                break
        print(f"{world.wrong} wrong answers; {world.found} routes found, {world.ended} entries over before")
        assert world.found
        world.require_no_false_quarantine()


# That it can fail

Break = Callable[[pytest.MonkeyPatch], None]


def fields_are_not_noticed(patched: pytest.MonkeyPatch) -> None:
    patched.setattr(asked_fields, "deciding", lambda *_, **__: ())


def entries_are_not_noticed(patched: pytest.MonkeyPatch) -> None:
    patched.setattr(asked_fields, "refusal", lambda *_, **__: None)


def the_clock_is_not_noticed(patched: pytest.MonkeyPatch) -> None:
    patched.setattr(clock_values, "valid_until_ms", lambda *_, **__: None)


def units_of_the_clock_do_not_end(patched: pytest.MonkeyPatch) -> None:
    judged = clock_values.valid_until_ms

    def without_ends(*args: Any, **known: Any) -> int | None:
        end_ms = judged(*args, **known)
        return end_ms if end_ms is None or end_ms <= known["now_ms"] else None

    patched.setattr(clock_values, "valid_until_ms", without_ends)


def clients_without_capture_are_not_noticed(patched: pytest.MonkeyPatch) -> None:
    patched.setattr(Recorder, "sent", lambda *_: None)


def invalidations_are_lost(patched: pytest.MonkeyPatch) -> None:
    take = NotificationHandler.take

    def take_others(self: NotificationHandler, notifications: Sequence[Any], *, complete: bool) -> None:
        take(
            self,
            [notification for notification in notifications if not isinstance(notification, Invalidated)],
            complete=complete,
        )

    patched.setattr(NotificationHandler, "take", take_others)


@pytest.mark.parametrize(
    ("broken", "ways", "happens"),
    [
        (fields_are_not_noticed, tuple(way for way in ASKED if way.startswith("field")), None),
        (entries_are_not_noticed, ("address", "entry", "state"), None),
        (the_clock_is_not_noticed, ("clock",), Jump),
        (units_of_the_clock_do_not_end, ("clock: its unit",), Jump),
        (clients_without_capture_are_not_noticed, ("setting, by a client without capture",), Write),
        (invalidations_are_lost, ("parameter", "path"), Write),
    ],
    ids=lambda part: getattr(part, "__name__", ""),
)
def test_the_property_fails_for_a_cache_where(
    broken: Break,
    ways: tuple[str, ...],
    happens: Any,
    mongo_url: str,
    prefix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken(monkeypatch)
    with stage(World, mongo_url, prefix, tmp_path) as played:
        assert isinstance(first_failure(played, 100, pointed_stories(ways, happens)), WrongAnswerError)


def test_the_property_fails_for_a_cache_that_does_not_verify_itself(
    mongo_url: str, prefix: str, tmp_path: Path
) -> None:
    with stage(UnseenWorld, mongo_url, prefix, tmp_path, verification=False, patience_s=1) as played:
        failure = first_failure(played, 10, stories(("path",), unseen=True))
        assert "did not hold within 1 s" in str(failure)
