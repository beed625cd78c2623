"""The bytes of the Cache Sketch are those of docs/sketch_format.md, whose vectors clients are written by."""

from __future__ import annotations

import json
from pathlib import Path

from quaestor.cache_sketch import wire_format
from quaestor.cache_sketch.counting import CountingFilter
from quaestor.cache_sketch.sizing import DEFAULT, Geometry
from quaestor.middleware.sketch_snapshot import SketchSnapshot

VECTORS = json.loads((Path(__file__).parent / "sketch_format.json").read_text())
PAGE = (Path(__file__).parents[2] / "docs" / "sketch_format.md").read_text()


def test_golden_digests_and_positions() -> None:
    """Fixed for ever."""
    assert wire_format.SALT.hex() == VECTORS["salt"]
    for resource, digest, positions in VECTORS["digests"]:
        assert wire_format.digest(resource).hex() == digest
        assert list(wire_format.positions(bytes.fromhex(digest), DEFAULT)) == positions


def body_of(keys: list[str]) -> bytes:
    small = VECTORS["small"]
    geometry = Geometry(slices=small["slices"], bits_per_slice=small["bits_per_slice"], capacity=3, error_rate=0.5)
    filled = CountingFilter(geometry)
    for key in keys:
        filled.add(wire_format.digest(key))
    return wire_format.encode(geometry, keys=filled.keys, bits=filled.bits)


def test_the_body_is_fixed_for_ever() -> None:
    """Fixed for ever: every byte of a small one."""
    assert body_of(VECTORS["small"]["keys"]).hex() == VECTORS["small"]["body"]


def test_the_difference_is_fixed_for_ever() -> None:
    """Fixed for ever: from the small one to another, with the versions by which both are named."""
    small, difference = VECTORS["small"], VECTORS["difference"]
    older, newer = (SketchSnapshot(body_of(vector["keys"]), 1, off=False) for vector in (small, difference))
    assert (older.version.decode(), newer.version.decode()) == (small["version"], difference["version"])
    delta = newer.delta(older.body, frozenset({b"gzip"}))
    assert delta is None, "so small a one is no smaller compressed"
    assert newer.difference(older.body).hex() == difference["body"]


def test_the_page_shows_the_vectors() -> None:
    """The page for authors of clients contains exactly the vectors that are tested here."""
    assert VECTORS["salt"] in PAGE
    for resource, digest, positions in VECTORS["digests"]:
        assert f"| `{resource}` | `{digest}` | {', '.join(map(str, positions))} |" in PAGE
    for vector in (VECTORS["small"], VECTORS["difference"]):
        assert " ".join(vector["body"][at : at + 16] for at in range(0, len(vector["body"]), 16)) in PAGE
        assert f"`{vector['version']}`" in PAGE
