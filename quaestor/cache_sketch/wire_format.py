"""The bytes that clients load: the format of pybloom_live 4.0.0's `BloomFilter.tofile`, written down here and golden-tested.

    offset  size  little-endian
    0       8     error rate, IEEE 754 double
    8       8     k, number of slices
    16      8     bits per slice
    24      8     capacity
    32      8     number of keys
    40      ...   the bits; bit i is bit i mod 8 (least significant first) of byte i div 8

A key's digest is xxh128 over a 16-byte salt and the key in UTF-8, in canonical (big-endian) order. Read as little-endian
16-bit numbers n0, n1, ..., its position in slice i is n_i mod bits_per_slice, counted from i * bits_per_slice. pybloom_live
reads the digest in the machine's order. On a big-endian machine its filters are therefore not portable; Quaestor's filters are.
"""

from __future__ import annotations

import struct

import xxhash

from quaestor.cache_sketch.sizing import Geometry

SALT = xxhash.xxh128(struct.pack("<I", 0)).digest()
DIGEST_BYTES = 16
_HEADER = struct.Struct("<dQQQQ")
_NUMBERS = struct.Struct("<8H")


def digest(resource: str) -> bytes:
    """The 16 bytes that stand for a key everywhere behind the API. Long keys thus cost no more memory than short ones.

    If two keys have one digest, a change of either counts for both: a false positive, never a false negative.
    """
    return xxhash.xxh128_digest(SALT + resource.encode("utf-8", "surrogatepass"))


def positions(key_digest: bytes, geometry: Geometry) -> tuple[int, ...]:
    """Positions of a key, one per slice, counted from the first bit of the filter. All are different."""
    numbers = _NUMBERS.unpack(key_digest)
    width = geometry.bits_per_slice
    return tuple(i * width + numbers[i] % width for i in range(geometry.slices))


def encode(geometry: Geometry, *, keys: int, bits: bytes | bytearray) -> bytes:
    """Whole body: header and bits.

    keys: number of keys in the filter.
    bits: packed, least significant bit first, geometry.size_bytes long.
    """
    header = _HEADER.pack(
        geometry.error_rate, geometry.slices, geometry.bits_per_slice, geometry.capacity, min(keys, 2**63)
    )
    return header + bytes(bits)


def saturated(geometry: Geometry) -> bytes:
    """Body of a filter that contains every key."""
    return encode(geometry, keys=geometry.capacity, bits=b"\xff" * geometry.size_bytes)
