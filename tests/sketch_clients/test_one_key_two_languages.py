"""Python and JavaScript compute the same Cache Sketch key of a URL, and find the same keys in the same sketch."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path

import pytest

from benchmarks.setups.clients.node import run
from quaestor.cache_sketch import wire_format
from quaestor.cache_sketch.counting import CountingFilter
from quaestor.cache_sketch.sizing import DEFAULT, Geometry
from quaestor.read_path.key import resource

GOLDEN = json.loads((Path(__file__).parent / "resources.json").read_text())
BATCH = 100_000
ALPHABETS = [
    "ab",
    "AbZz09-._~",
    "!$'()*+,;=:@/?&",
    "%%%0123456789abcdefABCDEF",
    "&=&=&=ab",
    "é北😀ß\x7f\x80",
    '<>"{}|\\^`[] \t',
]


def urls(count: int, seed: int) -> list[tuple[str, str]]:
    """Random targets in odd spellings: escapes of every kind, whole and broken, repeated and empty parameters."""
    chance = random.Random(seed)

    def text(longest: int) -> str:
        length = min(longest, int(chance.expovariate(0.05)))
        return "".join(chance.choice(chance.choice(ALPHABETS)) for _ in range(length))

    return [("/" + text(60).replace("?", "%3f"), text(120)) for _ in range(count)]


def in_python(targets: list[tuple[str, str]]) -> list[str]:
    return [resource(path.encode(), query.encode()) for path, query in targets]


def in_javascript(targets: list[tuple[str, str]]) -> list[str]:
    return [json.loads(line) for line in run("names.ts", [json.dumps(target) for target in targets]).splitlines()]


@pytest.mark.parametrize(
    ("path", "query", "expected"), GOLDEN, ids=[f"{path}?{query}"[:30] for path, query, _ in GOLDEN]
)
def test_golden_names_in_python(path: str, query: str, expected: str) -> None:
    """Fixed for ever: clients outside compute the same."""
    assert resource(path.encode(), query.encode()) == expected


def test_golden_names_in_javascript() -> None:
    assert in_javascript([(path, query) for path, query, _ in GOLDEN]) == [expected for *_, expected in GOLDEN]


def agree(count: int, seed: int) -> None:
    targets = urls(count, seed)
    different = [
        (target, ours, theirs)
        for target, ours, theirs in zip(targets, in_python(targets), in_javascript(targets), strict=True)
        if ours != theirs
    ]
    assert not different, different[:3]


def test_random_names_have_one_key_in_both_languages() -> None:
    agree(5_000, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_a_million_random_names_agree(seed: int) -> None:
    agree(BATCH, seed=100 + seed)


def look_up(body: bytes, names: list[str]) -> str:
    return run("looked_up.ts", [base64.b64encode(body).decode(), *map(json.dumps, names)])


GEOMETRIES = {
    "default": DEFAULT,
    "largest": Geometry(slices=8, bits_per_slice=32_767, capacity=1, error_rate=0.1),
    "smallest": Geometry(slices=1, bits_per_slice=8, capacity=1, error_rate=0.5),
}


@pytest.mark.parametrize("geometry", GEOMETRIES.values(), ids=GEOMETRIES)
def test_javascript_finds_what_python_put_in(geometry: Geometry) -> None:
    """Every key that is in the sketch is found, and of the others the same are false positives. Of all lengths: the digest takes
    different ways for short, middle and long ones."""
    names = in_python([("/" + "x" * length, "") for length in (*range(300), 1100, 2100)] + urls(1000, seed=2))
    filled = CountingFilter(geometry)
    for name in names[::2]:
        filled.add(wire_format.digest(name))

    def found(name: str) -> bool:
        places = wire_format.positions(wire_format.digest(name), geometry)
        return all(filled.bits[place >> 3] >> (place & 7) & 1 for place in places)

    body = wire_format.encode(geometry, keys=filled.keys, bits=filled.bits)
    assert look_up(body, names) == "".join("1" if found(name) else "0" for name in names)


def test_bytes_that_are_no_sketch_are_refused() -> None:
    """A client that cannot read the sketch revalidates; it never reads a wrong one."""
    whole = wire_format.saturated(DEFAULT)
    bodies = {
        "whole": whole,
        "empty": b"",
        "cut in its header": whole[:39],
        "without bits": whole[:40],
        "cut": whole[:-1],
        "longer": whole + b"\0",
        "html": b"<!doctype html>" + b"x" * (len(whole) - 15),
        "no slices": whole[:8] + (0).to_bytes(8, "little") + whole[16:],
        "nine slices": whole[:8] + (9).to_bytes(8, "little") + whole[16:],
        "slices beyond 32 bits": whole[:8] + (2**32 + 4).to_bytes(8, "little") + whole[16:],
        "width beyond 32 bits": whole[:16] + (2**40).to_bytes(8, "little") + whole[24:],
        "width zero": whole[:16] + (0).to_bytes(8, "little") + whole[24:],
    }
    read = run("refused.ts", [base64.b64encode(body).decode() for body in bodies.values()])
    assert dict(zip(bodies, read, strict=True)) == {name: "1" if name == "whole" else "0" for name in bodies}
