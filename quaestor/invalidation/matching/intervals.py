"""Tree of closed intervals, searched by a point or a span that they overlap.

The tree is a B+-tree ordered by (low, high). Each node also keeps, for each position, the largest upper end up to that
position. A search goes backward from the last interval that begins early enough. The search stops where no earlier interval
reaches far enough. For intervals that rarely nest, it visits little more than its results. A few wide intervals among many
narrow ones cost one path each. Insertion, removal and search visit O(log n) nodes, and a search also the nodes of its
results. A visit is a bisection; a change adds a shift of at most `_FULL` references.

Reaches are upper bounds: a removal leaves them as they are, and a split makes them exact again.

Ends in one tree must be mutually comparable (one bracket of the BSON order). Equal intervals share an entry.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

_FULL: Final = 128


class _Node:
    """Node of the tree, as parallel lists.

    lows, highs: the intervals of a leaf; in an inner node the first interval of each child.
    items: the payloads, or the children.
    tops: the largest upper end in each child; in a leaf `highs`.
    reach: `reach[i]` is at least the maximum of `tops[: i + 1]` and never falls with i.
    """

    __slots__ = ("highs", "inner", "items", "lows", "reach", "tops")

    def __init__(self, inner: bool, lows: list[Any], highs: list[Any], tops: list[Any], items: list[Any]) -> None:
        self.inner = inner
        self.lows = lows
        self.highs = highs
        self.tops = tops
        self.items = items
        self.reach: list[Any] = list(accumulate(tops, max))

    def insert(self, position: int, low: Any, high: Any, top: Any, item: Any) -> None:
        self.lows.insert(position, low)
        self.highs.insert(position, high)
        if self.inner:
            self.tops.insert(position, top)
        self.items.insert(position, item)
        before = self.reach[position - 1] if position else top
        self.reach.insert(position, before if before > top else top)
        if position + 1 < len(self.reach):
            self.raise_reach(position + 1, top)

    def raise_reach(self, position: int, top: Any) -> None:
        """Note that the intervals from `position` on reach at least to `top`."""
        reach = self.reach
        if reach[position] < top:
            end = bisect_left(reach, top, position)
            reach[position:end] = [top] * (end - position)

    def drop(self, position: int) -> None:
        del self.lows[position], self.highs[position], self.items[position], self.reach[position]
        if self.inner:
            del self.tops[position]

    def split(self) -> _Node:
        """Keep the first half; return the second half."""
        half = len(self.items) // 2
        lows, highs, items = self.lows[half:], self.highs[half:], self.items[half:]
        right = _Node(self.inner, lows, highs, self.tops[half:] if self.inner else highs, items)
        del self.lows[half:], self.highs[half:], self.items[half:]
        if self.inner:
            del self.tops[half:]
        self.reach = list(accumulate(self.tops, max))
        return right


class IntervalTree(Generic[T]):
    """Payloads by closed interval. Not thread-safe."""

    __slots__ = ("_root", "_size")

    def __init__(self) -> None:
        self._root = _leaf([], [], [])
        self._size = 0

    def __len__(self) -> int:
        """Return the number of different intervals."""
        return self._size

    def get(self, low: Any, high: Any) -> T | None:
        """Return the payload of exactly this interval, or None."""
        node = self._root
        while node.inner:
            node = node.items[_child(node, low, high)]
        position = _position(node, low, high)
        if _holds(node, position, low, high):
            item: T = node.items[position]
            return item
        return None

    def put(self, low: Any, high: Any, payload: T) -> None:
        """Set the payload of this interval, in place of a former one."""
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
        """Remove this interval and return its payload; None if the interval was absent."""
        item: T | None = self._pop(self._root, low, high)
        while self._root.inner and len(self._root.items) <= 1:
            self._root = self._root.items[0] if self._root.items else _leaf([], [], [])
        return item

    def overlapping(self, low: Any, high: Any, matches: list[T]) -> None:
        """Append the payloads of all intervals with a point in [low, high], in no order; `low == high` searches a point."""
        _search(self._root, low, high, matches)

    def payloads(self) -> list[T]:
        """Return every payload, in the order of the intervals."""
        items: list[T] = []
        _collect(self._root, items)
        return items

    def _put(self, node: _Node, low: Any, high: Any, payload: T) -> _Node | None:
        if not node.inner:
            position = _position(node, low, high)
            if _holds(node, position, low, high):
                node.items[position] = payload
                return None
            node.insert(position, low, high, high, payload)
            self._size += 1
        else:
            position = _child(node, low, high)
            child: _Node = node.items[position]
            split = self._put(child, low, high, payload)
            node.lows[position], node.highs[position] = child.lows[0], child.highs[0]
            node.tops[position] = child.reach[-1]
            node.raise_reach(position, child.reach[-1])
            if split is not None:
                node.insert(position + 1, split.lows[0], split.highs[0], split.reach[-1], split)
        return node.split() if len(node.items) > _FULL else None

    def _pop(self, node: _Node, low: Any, high: Any) -> Any:
        if not node.inner:
            position = _position(node, low, high)
            if not _holds(node, position, low, high):
                return None
            self._size -= 1
            payload = node.items[position]
            node.drop(position)
            return payload
        position = _child(node, low, high)
        child: _Node = node.items[position]
        payload = self._pop(child, low, high)
        if payload is not None:
            if child.items:
                node.lows[position], node.highs[position] = child.lows[0], child.highs[0]
            else:
                node.drop(position)
        return payload


def _leaf(lows: list[Any], highs: list[Any], items: list[Any]) -> _Node:
    return _Node(False, lows, highs, highs, items)


def _position(node: _Node, low: Any, high: Any) -> int:
    """Return the position where (low, high) is or belongs among the node's entries."""
    first = bisect_left(node.lows, low)
    return bisect_left(node.highs, high, first, bisect_right(node.lows, low, first))


def _holds(node: _Node, position: int, low: Any, high: Any) -> bool:
    return position < len(node.items) and node.lows[position] == low and node.highs[position] == high


def _child(node: _Node, low: Any, high: Any) -> int:
    """Return the child that holds or would hold (low, high): the last one that does not begin after it."""
    position = _position(node, low, high)
    return position if _holds(node, position, low, high) else max(position - 1, 0)


def _search(node: _Node, low: Any, high: Any, matches: list[Any]) -> None:
    while True:
        reach = node.reach
        position = bisect_right(node.lows, high) - 1
        if position < 0 or reach[position] < low:
            return
        tops, items = node.tops, node.items
        if node.inner:
            # Usually a single child remains to search; the loop then continues there instead of a recursive call.
            while position and reach[position - 1] >= low:
                if tops[position] >= low:
                    _search(items[position], low, high, matches)
                position -= 1
            if tops[position] < low:
                return
            node = items[position]
            continue
        while position >= 0 and reach[position] >= low:
            if tops[position] >= low:
                matches.append(items[position])
            position -= 1
        return


def _collect(node: _Node, payloads: list[Any]) -> None:
    if not node.inner:
        payloads.extend(node.items)
        return
    for child in node.items:
        _collect(child, payloads)
