"""Closed intervals, found by a point or a span that they overlap.

A B+-tree ordered by (low, high) in which every node also knows, for each position, the highest upper end up to there.
A search goes backward from the last interval that begins early enough and stops where nothing before it reaches far
enough: for intervals that rarely nest it looks at little more than what it returns, and a few wide ones among many
narrow ones cost one path each. Insertion, removal and search are O(log n) node visits plus the results; a node visit is
a bisection of a list and, on change, one pass over at most `_FULL` entries in C.

Ends of one tree must be mutually comparable (one bracket of the BSON order). Equal intervals share one entry.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

_FULL: Final = 128


class _Node:
    """Parallel lists: for a leaf the intervals and their payloads; for an inner node its children, each with the
    first interval (`lows`, `highs`) and the highest upper end (`tops`) in it. `reach` is the running maximum of tops;
    in a leaf `tops` is `highs`."""

    __slots__ = ("highs", "inner", "items", "lows", "reach", "tops")

    def __init__(self, inner: bool, lows: list[Any], highs: list[Any], tops: list[Any], items: list[Any]) -> None:
        self.inner = inner
        self.lows = lows
        self.highs = highs
        self.tops = tops
        self.items = items
        self.reach: list[Any] = list(accumulate(tops, max))

    def refresh(self, position: int) -> None:
        """Recompute `reach` from `position` on."""
        reach = self.reach
        del reach[max(position, 0) :]
        if reach:
            reach.extend(list(accumulate(self.tops[len(reach) :], max, initial=reach[-1]))[1:])
        else:
            reach.extend(accumulate(self.tops, max))


class IntervalTree(Generic[T]):
    """Payloads by closed interval. Not thread-safe."""

    __slots__ = ("_root", "_size")

    def __init__(self) -> None:
        self._root = _leaf([], [], [])
        self._size = 0

    def __len__(self) -> int:
        """How many different intervals it holds."""
        return self._size

    def get(self, low: Any, high: Any) -> T | None:
        """The payload of exactly this interval."""
        node = self._root
        while node.inner:
            node = node.items[_child(node, low, high)]
        position = _position(node, low, high)
        if _holds(node, position, low, high):
            found: T = node.items[position]
            return found
        return None

    def put(self, low: Any, high: Any, payload: T) -> None:
        """Set the payload of this interval, replacing the one it had."""
        split = self._put(self._root, low, high, payload)
        if split is not None:
            left, right = self._root, split
            self._root = _Node(
                True,
                [left.lows[0], right.lows[0]],
                [left.highs[0], right.highs[0]],
                [left.reach[-1], right.reach[-1]],
                [left, right],
            )

    def pop(self, low: Any, high: Any) -> T | None:
        """Remove this interval and return its payload, None if it was not there."""
        found: T | None = self._pop(self._root, low, high)
        while self._root.inner and len(self._root.items) <= 1:
            self._root = self._root.items[0] if self._root.items else _leaf([], [], [])
        return found

    def overlapping(self, low: Any, high: Any, found: list[T]) -> None:
        """Append the payloads of all intervals with a point in [low, high], in no order; `low == high` stabs."""
        _search(self._root, low, high, found)

    def payloads(self) -> list[T]:
        """Every payload, in the order of the intervals."""
        found: list[T] = []
        _collect(self._root, found)
        return found

    def _put(self, node: _Node, low: Any, high: Any, payload: T) -> _Node | None:
        if not node.inner:
            position = _position(node, low, high)
            if _holds(node, position, low, high):
                node.items[position] = payload
                return None
            node.lows.insert(position, low)
            node.highs.insert(position, high)
            node.items.insert(position, payload)
            self._size += 1
        else:
            position = _child(node, low, high)
            child = node.items[position]
            split = self._put(child, low, high, payload)
            _note(node, position, child)
            if split is not None:
                node.lows.insert(position + 1, split.lows[0])
                node.highs.insert(position + 1, split.highs[0])
                node.tops.insert(position + 1, split.reach[-1])
                node.items.insert(position + 1, split)
        if len(node.items) > _FULL:
            return _split(node)
        node.refresh(position)
        return None

    def _pop(self, node: _Node, low: Any, high: Any) -> Any:
        if not node.inner:
            position = _position(node, low, high)
            if not _holds(node, position, low, high):
                return None
            self._size -= 1
            payload = node.items[position]
            _drop(node, position)
            return payload
        position = _child(node, low, high)
        child = node.items[position]
        payload = self._pop(child, low, high)
        if payload is not None:
            if child.items:
                _note(node, position, child)
                node.refresh(position)
            else:
                _drop(node, position)
        return payload


def _leaf(lows: list[Any], highs: list[Any], items: list[Any]) -> _Node:
    return _Node(False, lows, highs, highs, items)


def _position(node: _Node, low: Any, high: Any) -> int:
    """Where (low, high) is or belongs among the node's entries."""
    first = bisect_left(node.lows, low)
    return bisect_left(node.highs, high, first, bisect_right(node.lows, low, first))


def _holds(node: _Node, position: int, low: Any, high: Any) -> bool:
    return position < len(node.items) and node.lows[position] == low and node.highs[position] == high


def _child(node: _Node, low: Any, high: Any) -> int:
    """The child that holds or would hold (low, high): the last one that does not begin after it."""
    position = _position(node, low, high)
    return position if _holds(node, position, low, high) else max(position - 1, 0)


def _note(node: _Node, position: int, child: _Node) -> None:
    node.lows[position] = child.lows[0]
    node.highs[position] = child.highs[0]
    node.tops[position] = child.reach[-1]


def _drop(node: _Node, position: int) -> None:
    del node.lows[position], node.highs[position], node.items[position]
    if node.tops is not node.highs:
        del node.tops[position]
    node.refresh(position)


def _split(node: _Node) -> _Node:
    half = len(node.items) // 2
    lows, highs, items = node.lows[half:], node.highs[half:], node.items[half:]
    right = _Node(node.inner, lows, highs, highs if not node.inner else node.tops[half:], items)
    del node.lows[half:], node.highs[half:], node.items[half:]
    if node.inner:
        del node.tops[half:]
    node.refresh(0)
    return right


def _search(node: _Node, low: Any, high: Any, found: list[Any]) -> None:
    reach, tops, items = node.reach, node.tops, node.items
    position = bisect_right(node.lows, high) - 1
    inner = node.inner
    while position >= 0 and reach[position] >= low:
        if tops[position] >= low:
            if inner:
                _search(items[position], low, high, found)
            else:
                found.append(items[position])
        position -= 1


def _collect(node: _Node, found: list[Any]) -> None:
    if not node.inner:
        found.extend(node.items)
        return
    for child in node.items:
        _collect(child, found)
