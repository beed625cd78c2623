"""Shape of a grid as a BSON array: `[query partitions, write partitions]`, with the generation behind them unless it is 0."""

from __future__ import annotations

from collections.abc import Sequence

from quaestor.model import GridShape


def encode_shape(shape: GridShape) -> list[int]:
    """Return the array of a shape."""
    partitions = [shape.query_partitions, shape.write_partitions]
    return [*partitions, shape.generation] if shape.generation else partitions


def decode_shape(fields: Sequence[int]) -> GridShape:
    """Return the shape of an array. Raises ValueError or TypeError if it is none."""
    query_partitions, write_partitions, *generation = map(int, fields)
    return GridShape(
        query_partitions=query_partitions,
        write_partitions=write_partitions,
        generation=generation[0] if generation else 0,
    )
