"""Event loop of the simulation, over arrays: compiled if numba is installed, else interpreted, with the same results.

The loop is a generator. The generator yields at each read that needs a lifetime, because only the estimator knows lifetimes, and
goes on with the answer. Its arguments cross into compiled code once. Invalidations are collected meanwhile and passed before the
next question, because leaving and entering the loop takes about a microsecond. Times are seconds. A version of a result is the
number of its changes.

All copies of a result die at the same moment: the app gives each copy the remaining lifetime. When that is over and nothing has
changed, the app gives the same lifetime again (`read_path/outside_copies.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar, cast

import numpy as np

_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(function: _Function) -> _Function:
    """Function compiled by numba, and stored for the next process where that is possible. Without numba it is returned unchanged,
    and is about a hundred times as slow."""
    try:
        from numba import njit
    except ImportError:
        return function
    try:
        return cast(_Function, njit(cache=True, nogil=True)(function))
    except RuntimeError:  # there is no place for the cache
        return cast(_Function, njit(nogil=True)(function))


Array = np.ndarray[Any, np.dtype[Any]]

NOTHING: Final = -1
"""Result of a yield without a question: it only passes invalidations."""
# Layers that answer.
BROWSER, CDN, APP, DATABASE = 0, 1, 2, 3
# Counters.
(
    REQUESTS, STALE, REVALIDATED, FALSE_POSITIVES, SKETCHES, INVALIDATIONS, PURGES, LISTED_PEAK, EXPIRED, RENEWED,
    BROWSER_STALE,
) = range(4, 15)  # fmt: skip
COUNTERS: Final = 15
# Sums.
STALE_S, STALE_MAX_S, LISTED_SUM, LISTED_SEEN = 0, 1, 2, 3
SUMS: Final = 4
# State of the loop.
LISTED, SWEPT_S, ANSWER_S = 0, 1, 2
STATE: Final = 3
# Columns by result: numbers.
VERSION, STORED, REGISTERED, FRESH_HITS, STALE_ANSWERS = 0, 1, 2, 3, 4
NUMBERS: Final = 5
# Columns by copy in a browser.
PAIR, COPY_VERSION, COPY_UNTIL, CHECKED = 0, 1, 2, 3
COPY: Final = 4
# Columns by result: seconds.
COPIES_UNTIL, LENGTH, ALIVE_UNTIL, LISTED_FROM, LISTED_UNTIL = 0, 1, 2, 3, 4


@compiled
def mixed(value: int) -> int:
    """Number with well-mixed bits, below 2^31."""
    value = (value * 2654435761 + 1013904223) & 0xFFFFFFFF
    value ^= value >> 15
    value = (value * 2246822519) & 0xFFFFFFFF
    value ^= value >> 13
    return value >> 1


@compiled
def enlist(k: int, at: float, known: float, until: float, state: Array, seconds: Array, leaving: Array) -> None:
    """Put a result into the sketch, from the moment its change is known until its last copy is dead."""
    last = leaving.shape[0] - 1
    if seconds[k, LISTED_UNTIL] > at:
        leaving[min(int(seconds[k, LISTED_UNTIL]) + 1, last)] -= 1
    else:
        seconds[k, LISTED_FROM] = known
        state[LISTED] += 1
    leaving[min(int(until) + 1, last)] += 1
    seconds[k, LISTED_UNTIL] = until


@compiled
def run(
    reads: tuple[Array, Array, Array],
    writes: tuple[Array, Array, Array, Array],
    options: Array,
    state: Array,
    numbers: Array,
    seconds: Array,
    edges: tuple[Array, Array],
    slots: Array,
    clients: Array,
    leaving: Array,
    false_positive_rates: Array,
    counters: Array,
    sums: Array,
    invalidations: tuple[Array, Array],
) -> Iterator[tuple[int, int, int]]:
    """Run the loop. Yields the result and the time (ms) of each read that needs a lifetime, and the number of invalidations to
    pass before. The caller puts the lifetime into state[ANSWER_S]. NOTHING as the result: only invalidations.

    reads: time, result and client of each read.
    writes: time and result of each write; start of a result's writes in the fourth array, which holds their times by result.
    options: delta_s, detection_s, purge_s, whether browsers keep copies, number of edges; then the time from which figures
        count, and how far ahead browsers assume the app's clock to be.
    edges: version and end of each edge's copy, by edge and result; -1: none.
    slots: copies in browsers, each with client and result, version, end, and the sketch of its last check. Each pair has a place;
        with fewer places than pairs they form a hash table of 2^n places.
    clients: time at which each client fetched its sketch.
    leaving: number of keys that leave the sketch, by second.
    invalidations: array of the result and time (ms) of each invalidation since the last yield.
    """
    read_s, read_of, read_by = reads
    write_s, write_of, first_write, by_result_s = writes
    edge_version, edge_until = edges
    invalidated_of, invalidated_ms = invalidations
    delta_s, detection_s, purge_s = options[0], options[1], options[2]
    browsers, edge_count, counted_from_s, ahead_s = options[3] > 0, int(options[4]), options[5], options[6]
    results = numbers.shape[0]
    mask = slots.shape[0] - 1
    direct = slots.shape[0] > clients.shape[0] * results
    w = buffered = 0
    counting = False
    for i in range(read_s.shape[0]):
        now = read_s[i]
        if not counting and now >= counted_from_s:
            counters[:] = 0
            sums[:] = 0.0
            counting = True
        # The changes before this request.
        while w < write_s.shape[0] and write_s[w] <= now:
            at, k = write_s[w], int(write_of[w])
            numbers[k, VERSION] += 1
            if numbers[k, REGISTERED]:
                if buffered >= invalidated_of.shape[0]:
                    yield NOTHING, 0, buffered
                    buffered = 0
                numbers[k, REGISTERED] = 0
                counters[INVALIDATIONS] += 1
                invalidated_of[buffered], invalidated_ms[buffered] = k, int((at + detection_s) * 1_000)
                buffered += 1
                until = seconds[k, ALIVE_UNTIL]
                if until > at:
                    counters[PURGES] += 1
                    enlist(k, at, at + detection_s, until, state, seconds, leaving)
            w += 1
        while state[SWEPT_S] < now and int(state[SWEPT_S]) < leaving.shape[0]:
            state[LISTED] -= leaving[int(state[SWEPT_S])]
            state[SWEPT_S] += 1
        k, c = int(read_of[i]), int(read_by[i])
        version = numbers[k, VERSION]
        slot = 0
        answered = -1
        kept_version = version
        until = 0.0
        counters[REQUESTS] += 1
        if browsers:
            if now - clients[c] >= delta_s:
                clients[c] = now
                counters[SKETCHES] += 1
                sums[LISTED_SUM] += state[LISTED]
                sums[LISTED_SEEN] += 1
                counters[LISTED_PEAK] = max(counters[LISTED_PEAK], int(state[LISTED]))
            pair = c * results + k + 1
            slot = pair
            if not direct:
                slot = mixed(pair) & mask
                while slots[slot, PAIR] != 0 and slots[slot, PAIR] != pair:
                    slot = (slot + 1) & mask
            if slots[slot, PAIR] == pair:
                if slots[slot, COPY_UNTIL] > now + ahead_s:
                    listed = seconds[k, LISTED_FROM] <= clients[c] < seconds[k, LISTED_UNTIL]
                    by_mistake = False
                    if not listed:
                        share = false_positive_rates[min(int(state[LISTED]), false_positive_rates.shape[0] - 1)]
                        by_mistake = share > 0 and mixed(pair + int(clients[c] * 1000.0)) < share * 2147483648.0
                    if slots[slot, CHECKED] == clients[c] or not (listed or by_mistake):
                        answered = BROWSER
                        kept_version = int(slots[slot, COPY_VERSION])
                    else:
                        counters[REVALIDATED] += 1
                        if by_mistake:
                            counters[FALSE_POSITIVES] += 1
                else:
                    counters[EXPIRED] += 1
        edge = 0
        if answered < 0 and edge_count:
            edge = c % edge_count
            held = edge_version[edge, k]
            if held >= 0 and edge_until[edge, k] > now:
                fresh = held == version
                if not fresh:
                    fresh = now < by_result_s[first_write[k] + held] + detection_s + purge_s
                if fresh:
                    answered, kept_version, until = CDN, held, edge_until[edge, k]
        if answered < 0:
            stored = numbers[k, STORED]
            live = stored == version
            if stored >= 0 and not live:
                live = now < by_result_s[first_write[k] + stored] + detection_s
            if not live:
                yield k, int(now * 1_000), buffered
                buffered = 0
                numbers[k, STORED], numbers[k, REGISTERED] = version, 1
                seconds[k, LENGTH] = state[ANSWER_S]
                seconds[k, COPIES_UNTIL] = now + state[ANSWER_S]
                answered = DATABASE
            else:
                answered, kept_version = APP, stored
                if seconds[k, COPIES_UNTIL] <= now:
                    counters[RENEWED] += 1
                    seconds[k, COPIES_UNTIL] = now + seconds[k, LENGTH]
            until = seconds[k, COPIES_UNTIL]
            seconds[k, ALIVE_UNTIL] = max(seconds[k, ALIVE_UNTIL], until)
            if kept_version < version and until > seconds[k, LISTED_UNTIL]:
                # Handed out before the app knew of the change: the sketch learns of these copies too.
                counters[PURGES] += seconds[k, LISTED_UNTIL] <= now
                enlist(k, now, now + detection_s, until, state, seconds, leaving)
            if edge_count:
                edge_version[edge, k], edge_until[edge, k] = kept_version, until
        if browsers and answered != BROWSER:
            slots[slot, PAIR], slots[slot, COPY_VERSION] = c * results + k + 1, kept_version
            slots[slot, COPY_UNTIL], slots[slot, CHECKED] = until, clients[c]
        counters[answered] += 1
        if kept_version == version:
            numbers[k, FRESH_HITS] += answered == BROWSER
        else:
            counters[STALE] += 1
            numbers[k, STALE_ANSWERS] += 1
            if answered == BROWSER:
                counters[BROWSER_STALE] += 1
            stale_s = now - by_result_s[first_write[k] + kept_version]
            sums[STALE_S] += stale_s
            sums[STALE_MAX_S] = max(sums[STALE_MAX_S], stale_s)
    if buffered:
        yield NOTHING, 0, buffered
