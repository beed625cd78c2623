"""Names of spatial functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SPATIAL: Final[Mapping[str, int]] = {"near": 3, "near_sphere": 3, "distance": 2, "distance_sphere": 2}
"""Number of arguments of each function."""
