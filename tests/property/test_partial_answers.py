"""Parts of random places, of one version and another, with one origin that lies: what comes out of the entry is what went in."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from quaestor.model import CachedResponse
from quaestor.read_path import partial_answers
from quaestor.read_path.partial_answers import MAX_PARTS, Part
from quaestor.read_path.ranges import Span
from quaestor.read_path.request import RequestFacts

SIZE = 60
VERSIONS = [bytes((number * 7 + at * (number + 3)) % 251 for at in range(SIZE)) for number in range(2)]
PLACES = st.tuples(st.integers(0, SIZE - 1), st.integers(0, SIZE - 1)).map(lambda ends: Span(min(ends), max(ends)))
KEY = partial_answers.key_of_parts("http://shop.test/film")


def received(span: Span, body: bytes, *, version: int, at: int, guarded: bool) -> CachedResponse:
    return CachedResponse(
        key=KEY, status=200, headers=((b"etag", b'"v%d"' % version),), body=body, etag=b'"v%d"' % version,
        stored_at_ms=at, fresh_until_ms=at + 100, stale_until_ms=at + 100, resource="/film",
        registrations=(f"r{at}",) if guarded else (), tags=(f"t{at}",),
    )  # fmt: skip


@given(
    st.lists(st.tuples(PLACES, st.integers(0, 1), st.booleans()), max_size=40),
    st.booleans(),
    st.sampled_from([20, SIZE]),
)
def test_parts_give_back_the_bytes_of_one_version(
    steps: list[tuple[Span, int, bool]], guarded: bool, most_bytes: int
) -> None:
    """The bytes that a partial entry gives for a range belong to the version that it names,
    unless the origin itself lied.

    The entry stays within its bounds, and depends on the reads of all of its parts.
    """
    entry: CachedResponse | None = None
    sources: dict[int, str] = {}
    for at, (span, version, lies) in enumerate(steps):
        content = VERSIONS[version] if not lies else bytes(SIZE)
        piece = content[span.first : span.last + 1]
        new = received(span, piece, version=version, at=at, guarded=guarded)
        made = partial_answers.combined(entry, new, Part(span, SIZE), most_bytes=most_bytes)
        kept = set(range(span.first, span.last + 1))
        if made.status == 200:
            assert (made.key, len(made.body)) == ("http://shop.test/film", SIZE)
            held = {at: made.body[at : at + 1] for at in range(SIZE)}
            entry = None
        else:
            pieces = partial_answers.pieces(made)
            assert partial_answers.places(made)[1] == SIZE
            assert len(pieces) <= MAX_PARTS
            assert len(made.body) <= max(most_bytes, span.size)
            held = {part.first + n: body[n : n + 1] for part, body in pieces for n in range(part.size)}
            for first, last in [(span.first, span.last), (0, SIZE - 1), (span.first, span.first)]:
                facts = RequestFacts(host=b"shop.test", byte_range=b"bytes=%d-%d" % (first, last), partial=True)
                selected = partial_answers.selected(made, facts)
                assert selected is not None or not kept.issuperset(range(first, last + 1))
                assert selected is None or selected[1] == b"".join(held[n] for n in range(first, last + 1))
            entry = made
        assert kept <= held.keys(), "what came is there"
        sources = {n: sources.get(n, "") for n in held} | dict.fromkeys(kept, f"r{at}")
        assert not guarded or {sources[n] for n in held} <= {*made.registrations, ""}
        truth = {n: VERSIONS[version][n : n + 1] for n in held}
        assert all(byte in (truth[n], b"\0") for n, byte in held.items()), "bytes of two versions are never mixed"
        if made.status == 200:
            sources = {}
