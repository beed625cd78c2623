"""Counter of the steps of a backtracking matcher: it interprets Python's own parse of an expression.

The count is the same on every machine, however busy. Groups, look-around, atomic groups and possessive repeats behave as in `re`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from re import _constants as ops  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

Continue = Callable[[int], int | None]
Matcher = Callable[[int, Continue], int | None]

_CATEGORIES = {
    ops.CATEGORY_DIGIT: r"\d",
    ops.CATEGORY_NOT_DIGIT: r"\D",
    ops.CATEGORY_SPACE: r"\s",
    ops.CATEGORY_NOT_SPACE: r"\S",
    ops.CATEGORY_WORD: r"\w",
    ops.CATEGORY_NOT_WORD: r"\W",
}
_SAMPLES = "a0 =-.\t\"';,/\\<A\n:~*{}[]()\x80" + "".join(map(chr, range(256)))
_REPEATS = (ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT)
_SINGLE = (ops.LITERAL, ops.NOT_LITERAL, ops.ANY, ops.IN)


def text_of(value: str | bytes) -> str:
    """A string as the interpreter reads it: bytes become the characters of the same numbers."""
    return value if isinstance(value, str) else value.decode("latin-1")


class CountedPattern:
    """An expression whose steps are counted.

    Raises RecursionError where an input nests deeper than Python allows.
    """

    def __init__(self, pattern: re.Pattern[str] | re.Pattern[bytes]) -> None:
        self.tree: Any = _parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG)
        self._flags = pattern.flags
        self._text = ""
        self._groups: dict[int, tuple[int, int]] = {}
        self._classes: dict[int, Callable[[str], bool]] = {}
        self.steps = 0
        self._run = self._sequence(self.tree)

    def match(self, text: str, at: int = 0, *, whole: bool = False) -> int | None:
        """The end of the match that begins at `at`; `whole`: only one that ends with the text."""
        self._text, self._groups = text, {}
        end = len(text)
        return self._run(at, (lambda position: position if position == end else None) if whole else _found)

    def scan(self, text: str) -> int:
        """Look for every match from left to right, as `sub` and `findall` do, and return their number."""
        at, matches = 0, 0
        while at <= len(text):
            self.steps += 1
            end = self.match(text, at)
            matches += end is not None
            at = at + 1 if end is None or end == at else end
        return matches

    def samples(self) -> Iterator[tuple[str, str]]:
        """Pairs of text that leads to a repeat, and text that goes round it once; then what leads to the end, twice."""
        yield from self._samples(self.tree, "")
        whole = self.shortest(self.tree)
        yield "", whole
        yield whole, whole

    def shortest(self, nodes: Iterable[tuple[Any, Any]]) -> str:
        """A text that the nodes match, as short as their repeats allow."""
        return "".join(self._shortest(op, av) for op, av in nodes)

    def members(self) -> set[str]:
        """A character for each set of the expression."""
        return {self._character(op, av) for op, av in _flat(self.tree) if op in _SINGLE and op is not ops.LITERAL}

    def repeats(self) -> bool:
        """Whether any part of the expression may match more than once in a row, or as much as another part has matched."""
        return any(op is ops.GROUPREF or (op in _REPEATS and av[1] > 1) for op, av in _everywhere(self.tree))

    def _samples(self, nodes: Iterable[tuple[Any, Any]], before: str) -> Iterator[tuple[str, str]]:
        for op, av in nodes:
            if op in _REPEATS:
                yield before, self.shortest(av[2])
                yield from self._samples(av[2], before)
                for branch in _branches(av[2]):
                    yield before, self.shortest(branch)
            elif op is ops.BRANCH:
                for branch in av[1]:
                    yield from self._samples(branch, before)
            elif op is ops.SUBPATTERN:
                yield from self._samples(av[3], before)
            elif op is ops.ATOMIC_GROUP:
                yield from self._samples(av, before)
            before += self._shortest(op, av)
            yield "", before

    def _shortest(self, op: Any, av: Any) -> str:
        if op in _SINGLE:
            return self._character(op, av)
        if op in _REPEATS:
            return self.shortest(av[2]) * int(av[0])
        if op is ops.BRANCH:
            return min((self.shortest(branch) for branch in av[1]), key=len)
        if op is ops.SUBPATTERN:
            return self.shortest(av[3])
        return self.shortest(av) if op is ops.ATOMIC_GROUP else ""

    def _character(self, op: Any, av: Any) -> str:
        accepts = self._single(op, av)
        return next(character for character in _SAMPLES if accepts(character))

    def _sequence(self, nodes: Iterable[tuple[Any, Any]]) -> Matcher:
        matchers = [self._node(op, av) for op, av in nodes]

        def run(at: int, then: Continue) -> int | None:
            return _in_turn(matchers, 0, at, then)

        return run

    def _node(self, op: Any, av: Any) -> Matcher:
        if op in _SINGLE:
            return self._once(self._single(op, av))
        if op in _REPEATS:
            return self._repeat(op, *av)
        if op is ops.BRANCH:
            return self._branch([self._sequence(branch) for branch in av[1]])
        if op is ops.SUBPATTERN:
            group, added, removed, nodes = av
            assert added == removed == 0
            return self._group(group, self._sequence(nodes))
        if op is ops.ATOMIC_GROUP:
            return self._atomic(self._sequence(av))
        if op in (ops.ASSERT, ops.ASSERT_NOT):
            return self._look(av[0], self._sequence(av[1]), av[1].getwidth()[1], wanted=op is ops.ASSERT)
        if op is ops.AT:
            return self._place(av)
        assert op is ops.GROUPREF, f"{op} is not interpreted: teach {__name__}"
        return self._reference(av)

    def _single(self, op: Any, av: Any) -> Callable[[str], bool]:
        known: dict[str, bool] = {}
        folds = bool(self._flags & re.IGNORECASE)

        def accepts(character: str) -> bool:
            if character not in known:
                cases = {character, character.lower(), character.upper()} if folds else {character}
                known[character] = any(self._holds(op, av, case) for case in cases)
            return known[character]

        return accepts

    def _holds(self, op: Any, av: Any, character: str) -> bool:
        if op is ops.ANY:
            return bool(self._flags & re.DOTALL) or character != "\n"
        if op is ops.LITERAL:
            return ord(character) == av
        if op is ops.NOT_LITERAL:
            return ord(character) != av
        if op is ops.RANGE:
            return bool(av[0] <= ord(character) <= av[1])
        if op is ops.CATEGORY:
            return re.match(_CATEGORIES[av], character, self._flags & re.ASCII or self._ascii()) is not None
        assert op is ops.IN, op
        negated = av[0][0] is ops.NEGATE
        return any(self._holds(kind, value, character) for kind, value in av[negated:]) != negated

    def _ascii(self) -> int:
        return 0 if self._flags & re.UNICODE else int(re.ASCII)

    def _once(self, accepts: Callable[[str], bool]) -> Matcher:
        def run(at: int, then: Continue) -> int | None:
            self.steps += 1
            return then(at + 1) if at < len(self._text) and accepts(self._text[at]) else None

        return run

    def _repeat(self, op: Any, least: int, most: Any, body: Any) -> Matcher:
        bound = len if most is ops.MAXREPEAT else (lambda _: int(most))
        if op is not ops.MIN_REPEAT and len(body) == 1 and body[0][0] in _SINGLE:
            return self._run_of(op, least, bound, self._single(*body[0]))
        inner = self._sequence(body)
        if op is ops.POSSESSIVE_REPEAT:
            return self._atomic(self._nested(inner, least, most, greedy=True))
        return self._nested(inner, least, most, greedy=op is ops.MAX_REPEAT)

    def _run_of(self, op: Any, least: int, bound: Callable[[str], int], accepts: Callable[[str], bool]) -> Matcher:
        def run(at: int, then: Continue) -> int | None:
            text, end = self._text, at
            last = min(len(text), at + bound(text))
            while end < last and accepts(text[end]):
                end += 1
            self.steps += end - at + 1
            for stop in range(end, at + least - 1, -1):
                self.steps += 1
                if (reached := then(stop)) is not None:
                    return reached
                if op is ops.POSSESSIVE_REPEAT:
                    return None
            return None

        return run

    def _nested(self, inner: Matcher, least: int, most: Any, *, greedy: bool) -> Matcher:
        def turn(at: int, then: Continue, turns: int, last: int) -> int | None:
            self.steps += 1

            def again() -> int | None:
                if (most is not ops.MAXREPEAT and turns >= most) or (at == last and turns > least):
                    return None
                return inner(at, lambda end: turn(end, then, turns + 1, at))

            if turns < least:
                return again()
            first, second = (again, lambda: then(at)) if greedy else ((lambda: then(at)), again)
            reached = first()
            return second() if reached is None else reached

        return lambda at, then: turn(at, then, 0, -1)

    def _branch(self, branches: list[Matcher]) -> Matcher:
        def run(at: int, then: Continue) -> int | None:
            for branch in branches:
                self.steps += 1
                if (end := branch(at, then)) is not None:
                    return end
            return None

        return run

    def _group(self, group: int | None, inner: Matcher) -> Matcher:
        def run(at: int, then: Continue) -> int | None:
            if group is None:
                return inner(at, then)
            before = self._groups.get(group)

            def close(end: int) -> int | None:
                self._groups[group] = (at, end)
                return then(end)

            if (end := inner(at, close)) is None:
                self._groups.pop(group, None)
                if before is not None:
                    self._groups[group] = before
            return end

        return run

    def _atomic(self, inner: Matcher) -> Matcher:
        def run(at: int, then: Continue) -> int | None:
            end = inner(at, _found)
            return None if end is None else then(end)

        return run

    def _look(self, direction: int, inner: Matcher, width: int, *, wanted: bool) -> Matcher:
        def run(at: int, then: Continue) -> int | None:
            start = at if direction > 0 else at - width
            holds = start >= 0 and inner(start, _found) is not None
            return then(at) if holds is wanted else None

        return run

    def _place(self, place: Any) -> Matcher:
        def run(at: int, then: Continue) -> int | None:
            self.steps += 1
            return then(at) if self._stands(place, at) else None

        return run

    def _stands(self, place: Any, at: int) -> bool:
        if place in (ops.AT_BEGINNING, ops.AT_BEGINNING_STRING):
            return at == 0
        if place is ops.AT_END_STRING:
            return at == len(self._text)
        if place is ops.AT_END:
            return self._text[at:] in ("", "\n")
        assert place is ops.AT_BOUNDARY, f"{place} is not interpreted: teach {__name__}"
        return self._word(at - 1) != self._word(at)

    def _word(self, at: int) -> bool:
        return 0 <= at < len(self._text) and re.match(r"\w", self._text[at], self._ascii()) is not None

    def _reference(self, group: int) -> Matcher:
        def run(at: int, then: Continue) -> int | None:
            self.steps += 1
            if group not in self._groups:
                return None
            said = self._text[slice(*self._groups[group])]
            return then(at + len(said)) if self._text.startswith(said, at) else None

        return run


def _found(at: int) -> int:
    return at


def _in_turn(matchers: list[Matcher], number: int, at: int, then: Continue) -> int | None:
    if number == len(matchers):
        return then(at)
    return matchers[number](at, lambda end: _in_turn(matchers, number + 1, end, then))


def _flat(nodes: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
    for op, av in nodes:
        yield op, av
        inner = {ops.SUBPATTERN: lambda av=av: av[3], ops.ATOMIC_GROUP: lambda av=av: av}.get(op)
        if op in _REPEATS:
            yield from _flat(av[2])
        elif op is ops.BRANCH:
            for branch in av[1]:
                yield from _flat(branch)
        elif inner is not None:
            yield from _flat(inner())


def _everywhere(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every node of a parsed expression, at any depth."""
    if isinstance(value, (list, tuple, _parser.SubPattern)):
        for part in value:
            if isinstance(part, tuple) and len(part) == 2 and isinstance(part[0], type(ops.LITERAL)):
                yield part
            yield from _everywhere(part)


def _branches(nodes: Iterable[tuple[Any, Any]]) -> Iterator[Any]:
    for op, av in nodes:
        if op is ops.BRANCH:
            yield from av[1]
        elif op is ops.SUBPATTERN:
            yield from _branches(av[3])
