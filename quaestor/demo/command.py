"""Command `quaestor demo`, also `--once`: starts the stack, prints its addresses, and stops it in any case."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from quaestor.demo import script
from quaestor.demo.progress import Progress
from quaestor.demo.replay import MAX_SPEED
from quaestor.demo.stack import Stack, StackOptions
from quaestor.demo.steps import Steps
from quaestor.errors import ConfigurationError
from quaestor.testing import reaper

_MANY_LAPS = 1_000
_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """Options of the command line; see StackOptions.

    speed: speed of the replay, as a multiple of the real day's.
    """

    day: str = "2013-07-04"
    speed: float = 60.0
    port: int = 0
    live_port: int = 0
    spark: bool = True
    varnish: bool = True


def demo(options: DemoOptions) -> int:
    """Run until Ctrl-C or SIGTERM; returns the exit status. Raises as Stack does."""
    if not 0 < options.speed <= MAX_SPEED:
        raise ConfigurationError(f"--speed lies between 0 and {MAX_SPEED:.0f}, not {options.speed:g}")
    progress = Progress()
    with _owning_all_processes(progress), _stack(options, progress) as stack:
        stack.start_replay(speed=options.speed, laps=_MANY_LAPS)
        _announce(stack, options)
        while True:
            time.sleep(0.5)
            for server in stack.ended():
                progress.say(f"! {server.name} has ended by itself; the end of its log:\n{server.log_tail(800)}")


def once(options: DemoOptions) -> int:
    """Run the script; returns 0 if every step held, else 1. Progress goes to stderr, steps to stdout."""
    progress = Progress()
    with _owning_all_processes(progress), _stack(options, progress, once=True) as stack:
        return 0 if script.run(stack, Steps()) else 1


def _stack(options: DemoOptions, progress: Progress, *, once: bool = False) -> Stack:
    """Stack for the script, alone and with a week of flights, or for the demo, with the whole year and gentle traffic."""
    return Stack(
        StackOptions(
            day=options.day,
            port=options.port,
            live_port=options.live_port,
            spark=options.spark,
            varnish=options.varnish,
            around_days=3 if once else None,
            requests_per_s=0 if once else 40,
            settings=script.SETTINGS if once else {},
        ),
        progress,
    )


@contextmanager
def _owning_all_processes(progress: Progress) -> Iterator[None]:
    """Run a block so that SIGTERM and a closed terminal end the command like Ctrl-C. The stop is not interrupted, and no process
    stays behind."""
    reaper.adopt_orphans()
    stopping = False

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True
        for number in _STOPPING:
            signal.signal(number, signal.SIG_IGN)
        progress.say("stopping")
        raise KeyboardInterrupt

    for number in _STOPPING:
        signal.signal(number, stop)
    try:
        yield
    finally:
        reaper.sweep()
        if stopping:
            progress.say("stopped; nothing is left running")


def _announce(stack: Stack, options: DemoOptions) -> None:
    front = stack.front_url
    print(
        f"""
  live page     {stack.live_url}
  live board    {front}/board?origin=JFK   (an EventSource on the board's own GET)
  live search   {front}/search   (posts, by pull or by push, in pages)
  by the clock  {front}/soon   (departures in the next hour: no write changes them)
  officers      {stack.officers_url}   (a map: each hears of hateful tweets near him, by a channel)
  application   {front}{"   (Varnish, before " + stack.app_url + ")" if stack.varnish else ""}
  database      {stack.mongo_url}   database {stack.database}

  Try, while {options.day} goes by at {options.speed:g} times its speed:

    curl -i '{front}/departures/JFK?limit=5'
    curl -i '{front}/departures/EWR?dest=ORD'
    curl -i '{front}/delays?day={options.day}'
    curl -i '{front}/counts/LGA?day={options.day}'
    curl -i '{stack.app_url}/quaestor/sketch' -o sketch

  Ask twice: the second answer is a hit, until a write changes it. Cache-Status says who answered.
  Ctrl-C stops everything.
""",
        flush=True,
    )
